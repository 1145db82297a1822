import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { programMissing } from '../support/requirements.ts';
import { type Case, type Client, NO_OAUTH } from './client.ts';
import { mustRun, run } from './program.ts';

const VERSION = '0.19.0';
const CRATE = `https://static.crates.io/crates/ngrok/ngrok-${VERSION}.crate`;
const TEST = ['cargo', 'test', '--lib', '-j1', '--features', 'online-tests,authenticated-tests,paid-tests,long-tests'];

/** The tests that `cargo test` printed; the output of a failed one comes later. */
function casesOf(printed: string): Case[] {
  return [...printed.matchAll(/^test (online_tests::\S+) \.\.\. (ok|FAILED|ignored)/gm)].map(([, name = '', end]) => {
    const [, output = ''] = new RegExp(`^---- ${name} stdout ----\\n([\\s\\S]*?)\\n\\n`, 'm').exec(printed) ?? [];
    return { name, status: end === 'ok' ? 'passed' : 'failed', output: end === 'ok' ? '' : output };
  });
}

export const rust: Client = {
  title: `Rust SDK ngrok ${VERSION}`,
  what: 'its online tests',
  needs: '`cargo` (the build takes minutes), crates.io',
  missing: () => programMissing('cargo', '--version'),
  async fetch(sources) {
    await mustRun(['curl', '--fail', '--silent', '--show-error', '--output', 'ngrok.crate', CRATE], { cwd: sources });
    await mustRun(['tar', '-xzf', 'ngrok.crate', '--strip-components=1'], { cwd: sources });
    // The suite's WebSocket client would trust no certificate of this gateway: its authorities are compiled in.
    const manifest = join(sources, 'Cargo.toml');
    writeFileSync(
      manifest,
      readFileSync(manifest, 'utf8').replace('"rustls-tls-webpki-roots"', '"rustls-tls-native-roots"'),
    );
    await mustRun([...TEST, '--no-run'], { cwd: sources });
  },
  async run(lab, sources) {
    const { CARGO_TARGET_DIR } = process.env;
    copyFileSync(lab.caFile, join(sources, 'assets/ngrok.ca.crt'));
    const options = { cwd: sources, env: { ...lab.env, CARGO_TARGET_DIR, CARGO_NET_OFFLINE: 'true' } };
    const { output } = await run([...TEST, 'online_tests', '--', '--test-threads=4'], options);
    const cases = casesOf(output);
    return cases.length > 0 ? cases : [{ name: 'build', status: 'failed', output }];
  },
  expected: {
    'online_tests::oauth': NO_OAUTH,
    'online_tests::session_root_cas': 'connects to ngrok.com',
  },
};
