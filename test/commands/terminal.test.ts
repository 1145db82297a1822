import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { expect, it, onTestFinished } from 'vitest';
import { AgentProcess, CLI, outcomeOf } from '../support/agent-process.ts';
import { startTestGateway } from '../support/gateway.ts';
import { startHttpService } from '../support/http-service.ts';
import { exchange } from '../support/https-exchange.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';

/** Runs the rest of the command line in a terminal, whose output it prints. */
const IN_TERMINAL = ['sh', '-c', 'exec script -qfec "echo \\$\\$ > pid; exec $*" /dev/null', 'sh'];

it('the SDK prints nothing on the terminal when a session is lost, but the agent does', async () => {
  const gateway = await startTestGateway();
  onTestFinished(() => gateway.close());
  const env = {
    AGENT_CONNECTOR: 'sdk',
    AGENT_GATEWAY: 'remote',
    NGROK_SERVER_ADDR: gateway.sessionAddress,
    NGROK_CA_CERT: gateway.caFile,
    NGROK_AUTHTOKEN: gateway.authtoken,
    TERM: 'xterm',
  };
  const folder = temporaryFolder();
  const agent = AgentProcess.inTest(folder, env, [], IN_TERMINAL);
  let shown = '';
  agent.child.stdout?.on('data', (bytes) => {
    shown += String(bytes);
  });
  await agent.ready();
  await agent.logged('session online');
  // Written for people on a terminal only, on standard error.
  await expect.poll(() => shown).toContain('No tunnels yet. In another terminal');
  const from = agent.lines.length;
  for (const session of gateway.sessions.sessions) session.end(new Error('ended by the test'));
  await agent.logged('session lost', from);
  await agent.logged('session online', from);
  const closed = once(agent.child, 'close');
  process.kill(Number(readFileSync(join(folder, 'pid'), 'utf8')));
  expect(await closed).toEqual([0, null]);
  // The log is still written at the end.
  expect(shown).toContain('"msg":"stopped"');
  expect(shown).toContain('"msg":"session lost"');
  expect(shown).not.toContain('Aborting connection');
});

/** A command in a terminal, or with pipes, whose output grows. */
function started(program: string, args: string[], env: Record<string, string>) {
  const child = spawn(program, args, { cwd: temporaryFolder(), env: { PATH: process.env.PATH, ...env } });
  onTestFinished(() => void child.kill('SIGKILL'));
  const running = { child, shown: '', ended: once(child, 'close') };
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      running.shown += text;
    });
  const shows = (text: string) => until(() => running.shown.includes(text), text, { everyMs: 10 });
  return Object.assign(running, { shows });
}

const inTerminal = (width: number, line: string) => ['-qefc', `stty cols ${width}; ${line}`, '/dev/null'];
const command = (...args: string[]) => ['exec', process.execPath, CLI, ...args].join(' ');

/** An agent with a tunnel of a long name, and the environment of commands for it. */
async function agentWithTunnel() {
  const agent = AgentProcess.inTest(temporaryFolder());
  const api = await agent.ready();
  const service = await startHttpService((_request, res) => res.end('hello'));
  onTestFinished(() => service.close());
  const body = JSON.stringify({ forwards_to: service.url, domain: 'camera-in-the-living-room.localhost' });
  const headers = { 'content-type': 'application/json' };
  const answer = await fetch(`${api}/tunnels`, { method: 'POST', headers, body });
  const { url } = (await answer.json()) as { url: string };
  const inspection = async () => {
    const report = await fetch(`${api}/tunnels/camera-in-the-living-room/inspection`);
    return ((await report.json()) as { state: string }).state;
  };
  return { url, inspection, env: { AGENT_PORT: new URL(api).port, TERM: 'xterm' } };
}

it('a terminal of 60, 80 or 120 columns shows URLs and paths in full', async () => {
  const { url, env } = await agentWithTunnel();
  const path = '/api/v1/rooms/living-room/cameras/2';
  for (const width of [60, 80, 120]) {
    const { stdout } = await outcomeOf('script', inTerminal(width, command('tunnels')), temporaryFolder(), env);
    expect(stdout).toContain(url);
    for (const line of stripVTControlCharacters(stdout).split('\r\n')) expect(line.length).toBeLessThanOrEqual(width);
    const watching = started('script', inTerminal(width, `echo $$; ${command('watch')}`), env);
    await watching.shows('PATH');
    await exchange(url + path);
    await watching.shows(path);
    process.kill(Number(/^\d+/.exec(watching.shown)?.[0]), 'SIGINT');
    expect(await watching.ended).toEqual([0, null]);
  }
});

it.each(['SIGINT', 'SIGHUP'] as const)('watch at %s ends its inspection and exits with 0', async (signal) => {
  const { env, inspection } = await agentWithTunnel();
  const watching = started(process.execPath, [CLI, 'watch'], env);
  await watching.shows('PATH');
  expect(await inspection()).toBe('on');
  watching.child.kill(signal);
  expect(await watching.ended).toEqual([0, null]);
  expect(await inspection()).toBe('off');
});

it('tunnels --watch ends when nobody reads it any more, and exits with 0', async () => {
  const { env } = await agentWithTunnel();
  const watching = started(process.execPath, [CLI, 'tunnels', '--watch'], env);
  await watching.shows('NAME');
  watching.child.stdout.destroy();
  expect(await watching.ended).toEqual([0, null]);
});

it.each([
  [{}, true],
  [{ NO_COLOR: '1' }, false],
  [{ TERM: 'dumb' }, false],
])('the log on a terminal with %j has colours: %j', async (set, isColoured) => {
  const env = { AGENT_PORT: '0', GATEWAY_HTTP_PORT: '0', GATEWAY_HTTPS_PORT: '0', TERM: 'xterm', ...set };
  const agent = started('script', inTerminal(80, `echo $$; ${command('run')}`), env);
  await agent.shows('local API listening');
  expect(agent.shown.includes('\u001b[3')).toBe(isColoured);
  await agent.shows('remote API online');
  process.kill(Number(/^\d+/.exec(agent.shown)?.[0]), 'SIGINT');
  expect(await agent.ended).toEqual([0, null]);
});
