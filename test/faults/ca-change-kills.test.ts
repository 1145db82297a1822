import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { certificatesIn, pinnedProtocols } from '../../src/lib/tls/pinned-chain.ts';
import { probeTls } from '../../src/lib/tls/tls-probe.ts';
import { fetchTrusting } from '../../src/management/fetch-trusting.ts';
import { CLI, deviceAgent } from '../support/agent-process.ts';
import { GatewayProcess } from '../support/gateway-process.ts';
import { measured } from '../support/measured.ts';
import { seeded } from '../support/seeded.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';
import { rounds } from './rounds.ts';

const CHANGES = rounds({ short: 1, full: 40 });
const SEED = Number(process.env.CA_SEED ?? Math.floor(Math.random() * 1_000_000));
/** The commands take about half a second; they are killed at any moment of that. */
const KILLED_WITHIN_MS = 700;

interface Report {
  cas: { id: string; state: string }[];
  change: object | null;
}

it(`a gateway has one CA after each of ${CHANGES} changes, over kill -9 of gateway, rotate and retire, and clients follow (seed ${SEED})`, {
  timeout: 60_000 + CHANGES * 20_000,
}, async () => {
  const random = seeded(SEED);
  const folder = temporaryFolder();
  const env = { DATA_DIR: join(folder, 'data'), GATEWAY_DOMAIN: 'localhost' };
  const gateway = await GatewayProcess.start(folder, env);
  onTestFinished(() => gateway.kill());
  let kills = 0;

  /** Kills the command at a random moment, and perhaps the gateway; then it is repeated until it says that it is done. */
  const interrupted = async (...args: string[]) => {
    const options = { env: { ...env, PATH: process.env.PATH }, cwd: folder, stdio: 'ignore' } as const;
    const command = spawn(process.execPath, [CLI, 'gateway', 'ca', ...args], options);
    const ended = once(command, 'exit');
    await Promise.race([delay(random() * KILLED_WITHIN_MS), ended]);
    if (command.exitCode === null) kills += 1;
    command.kill('SIGKILL');
    await ended;
    if (random() < 0.3) await gateway.restart();
  };
  const run = (...args: string[]) => deviceAgent(['gateway', 'ca', ...args], folder, env);
  const report = async () => JSON.parse((await run('--json')).stdout) as Report;
  /** What a client that trusts these CAs is told that the gateway has; rejects when it is shown no chain of theirs. */
  const shownTo = async (ca: string) => {
    const request = { method: 'GET', headers: {}, redirect: 'manual', signal: AbortSignal.timeout(10_000) } as const;
    const answer = await fetchTrusting({ ca })(`https://api.localhost:${gateway.httpsPort}/ca.pem`, request);
    return answer.text();
  };
  /** Whether a new connection of a client that trusts this CA is shown a chain of it. */
  const isShown = async (ca: string) => {
    const socket = connect({ host: '127.0.0.1', port: gateway.httpsPort });
    const name = { host: 'api.localhost', serverName: 'api.localhost' };
    const how = { ca, protocols: pinnedProtocols(ca), signal: AbortSignal.timeout(10_000) };
    const { distrust } = await probeTls(socket, name, how).finally(() => socket.destroy());
    return distrust === null;
  };

  let trusted = gateway.sessionCa;
  for (let count = 0; count < CHANGES; count += 1) {
    const [before] = (await report()).cas;
    await interrupted('rotate');
    expect((await run('rotate')).stderr).toMatch(/Both CAs are trusted|was begun before/);
    const { cas } = await report();
    expect(cas).toMatchObject([{ ...before, state: 'present' }, { state: 'next' }]);
    // It trusts the first one alone, and learns the next one from the gateway.
    await until(async () => certificatesIn(await shownTo(trusted)).length === 2, 'both CAs', { everyMs: 50 });
    const learned = await shownTo(trusted);

    await interrupted('retire');
    if ((await report()).change !== null) expect((await run('retire')).stderr).toContain('has ended');
    expect(await report()).toEqual({ cas: [{ ...cas[1], state: 'present' }], change: null });
    const first = trusted;
    await until(async () => !(await isShown(first)), 'the CA before has ended', { everyMs: 50 });
    trusted = await shownTo(learned);
    expect(certificatesIn(trusted)).toHaveLength(1);
    await until(() => readFileSync(gateway.caFile, 'utf8') === trusted, 'ca.pem', { everyMs: 50 });
  }
  await gateway.restart();
  expect(await shownTo(trusted)).toBe(trusted);
  measured({
    fault: 'changes of the CA, with kill -9 of gateway, rotate and retire',
    tried: CHANGES,
    note: `${kills} commands killed`,
  });
});
