import { copyFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { programMissing } from '../support/requirements.ts';
import { type Case, type Client, NO_OAUTH } from './client.ts';
import { mustRun, run } from './program.ts';

/** A Go module with tests that need a gateway. */
interface Suite {
  module: string;
  version: string;
  /** The gateway's certificate authority replaces this file, which the SDK trusts. */
  trusted: string;
  /** The online tests of each package: a file, or a pattern of names. */
  packages: Record<string, string>;
  expected: Record<string, string>;
}

function sdk({ module, version, trusted, packages, expected }: Suite): Client {
  return {
    title: `Go SDK ${module} ${version}`,
    what: 'its online tests',
    needs: '`go`, proxy.golang.org',
    missing: () => programMissing('go', 'version'),
    async fetch(sources) {
      const downloaded = await mustRun(['go', 'mod', 'download', '-json', `${module}@${version}`], { cwd: sources });
      const { Dir } = JSON.parse(downloaded) as { Dir: string };
      await mustRun(['cp', '-r', '--no-preserve=mode', `${Dir}/.`, sources], { cwd: sources });
      // Compiles everything, and fetches what it needs.
      await mustRun(['go', 'test', '-run', '^$', ...Object.keys(packages)], { cwd: sources, env: goEnv(process.env) });
    },
    async run(lab, sources) {
      copyFileSync(lab.caFile, join(sources, trusted));
      const env = goEnv({ ...lab.env, GOPROXY: 'off', NGROK_TEST_ONLINE: '1', NGROK_TEST_ALL: '1' });
      const cases: Case[] = [];
      for (const [name, file] of Object.entries(packages)) {
        const tests = file.endsWith('.go') ? `^(${testsIn(join(sources, name, file)).join('|')})$` : file;
        const { stdout, output } = await run(['go', 'test', '-json', '-count=1', '-run', tests, name], {
          cwd: sources,
          env,
        });
        const found = casesOf(stdout);
        cases.push(...(found.length > 0 ? found : [{ name, status: 'failed', output } as const]));
      }
      return cases;
    },
    expected,
  };
}

function goEnv(env: Record<string, string | undefined>): Record<string, string | undefined> {
  return { ...env, GOWORK: 'off', GOFLAGS: '-mod=mod' };
}

function testsIn(file: string): string[] {
  return [...readFileSync(file, 'utf8').matchAll(/^func (Test\w+)\(/gm)].map(([, name = '']) => name);
}

/** Top-level tests in what `go test -json` prints; one that is skipped shows nothing and counts as failed. */
function casesOf(printed: string): Case[] {
  const events = printed
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as { Action: string; Package: string; Test?: string; Output?: string });
  const ends = events.filter(
    ({ Action, Test }) => Test !== undefined && !Test.includes('/') && ['pass', 'fail', 'skip'].includes(Action),
  );
  return ends.map(({ Action, Package, Test = '' }) => {
    const outputs = events.filter((event) => event.Test === Test || event.Test?.startsWith(`${Test}/`));
    return {
      name: `${Package.replace(/^golang\.ngrok\.com\/ngrok\/?/, '')} ${Test}`.trim(),
      status: Action === 'pass' ? 'passed' : 'failed',
      output: Action === 'pass' ? '' : outputs.map(({ Output = '' }) => Output).join(''),
    };
  });
}

export const go: Client[] = [
  sdk({
    module: 'golang.ngrok.com/ngrok/v2',
    version: 'v2.4.0',
    trusted: 'internal/legacy/ngrok.ca.crt',
    packages: { '.': 'TestDiagnoseOnline', './internal/legacy': 'online_test.go', './internal/integration_tests': '.' },
    expected: {},
  }),
  sdk({
    module: 'golang.ngrok.com/ngrok',
    version: 'v1.12.1',
    trusted: 'assets/ngrok.ca.crt',
    packages: { '.': 'online_test.go' },
    expected: { TestOAuth: NO_OAUTH },
  }),
];
