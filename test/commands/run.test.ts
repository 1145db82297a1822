import { execFile } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { AgentProcess, CLI, deviceAgent, outcomeOf } from '../support/agent-process.ts';
import { freePorts } from '../support/free-ports.ts';
import { agentSettings } from '../support/gateway.ts';
import { GatewayProcess } from '../support/gateway-process.ts';
import { takenPort } from '../support/loopback.ts';
import { NO_DEV_FULL, unless } from '../support/requirements.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const FREE = { AGENT_PORT: '0', GATEWAY_HTTP_PORT: '0', GATEWAY_HTTPS_PORT: '0', LOG_FORMAT: 'json' };

let folder: string;
beforeEach(() => {
  folder = temporaryFolder();
});

function write(path: string, text: string): void {
  mkdirSync(join(folder, 'data'), { recursive: true, mode: 0o700 });
  writeFileSync(join(folder, path), text);
}

async function start(env: Record<string, string> = {}): Promise<AgentProcess> {
  const agent = AgentProcess.inTest(folder, env);
  await agent.ready();
  return agent;
}

const run = (env: Record<string, string> = {}) => deviceAgent(['run'], folder, { ...FREE, ...env });
/** @param to shell redirection of the command's output */
const exportTunnels = (to: string) =>
  outcomeOf('sh', ['-c', `"$0" "$1" tunnels export ${to}`, process.execPath, CLI], folder);
const oneLine = /^device-agent: [^\n]+\n$/;

const tunnel = (name: string) => ({
  id: name,
  protocol: 'http',
  forwards_to: 'localhost:9',
  domain: `${name}.localhost`,
  url: `https://${name}.localhost:8443`,
  policy: null,
  created_at: '2026-01-01T00:00:00.000Z',
});
const saved = (...names: string[]) => JSON.stringify({ version: 1, tunnels: names.map(tunnel) });

const domains = async (api: string) =>
  ((await (await fetch(`${api}/tunnels`)).json()) as { domain: string }[]).map(({ domain }) => domain);

describe('an agent that cannot start prints one line', () => {
  it('when another agent uses the data folder', async () => {
    const first = await start();
    const { code, stderr } = await run();
    expect(stderr).toMatch(oneLine);
    expect(stderr).toContain(`another agent or gateway uses ${join(folder, 'data')}`);
    expect(code).toBe(1);
    expect((await fetch(`${await first.api()}/readyz`)).status).toBe(200);
  });

  it('when its port is in use', async () => {
    const port = await takenPort();
    const { code, stderr } = await run({ AGENT_PORT: String(port) });
    expect(stderr).toMatch(oneLine);
    expect(stderr).toContain(`127.0.0.1:${port}`);
    expect(stderr).toContain('AGENT_PORT');
    expect(code).toBe(1);
  });

  it('when a port of the embedded gateway is in use', async () => {
    const port = await takenPort();
    const { code, stderr } = await run({ GATEWAY_HTTPS_PORT: String(port) });
    expect(stderr).toMatch(oneLine);
    expect(stderr).toContain(`127.0.0.1:${port}`);
    expect(stderr).toContain('GATEWAY_HTTPS_PORT');
    expect(code).toBe(1);
  });

  it('when the embedded gateway’s database does not support this machine; an agent with a remote gateway starts', async () => {
    const gateway = await GatewayProcess.start(temporaryFolder());
    onTestFinished(() => gateway.kill());
    write(
      'no-engine.cjs',
      `const Module = require('node:module');
       const resolve = Module._resolveFilename;
       Module._resolveFilename = (name, ...rest) => resolve(name.replace(/^@libsql\\//, '@absent/'), ...rest);`,
    );
    const without = { NODE_OPTIONS: `--require ${join(folder, 'no-engine.cjs')}` };
    const outcomes = [await run(without), await deviceAgent(['gateway'], folder, { ...FREE, ...without })];
    for (const { code, stderr } of outcomes) {
      expect(stderr).toMatch(oneLine);
      expect(stderr).toContain("cannot load the gateway's database engine (Cannot find module '@absent/");
      expect(stderr).toContain('NGROK_SERVER_ADDR');
      expect(code).toBe(1);
    }
    await start({
      ...without,
      ...agentSettings(gateway),
    });
  });

  it('when the default policies are damaged, with the file, position and problem', async () => {
    write('policies.json', '{\n  "inbound": [],\n  "outbound": [,]\n}');
    const { code, stderr } = await run({ DEFAULT_POLICIES: 'policies.json' });
    expect(stderr).toMatch(oneLine);
    expect(stderr).toContain(join(folder, 'policies.json'));
    expect(stderr).toContain('line 3');
    expect(code).not.toBe(0);
  });
});

it('invalid settings end the agent with exit code 2, and every variable, its value unless secret, and the allowed values', async () => {
  write('.env', 'AGENT_DOMAIN=not_a_name\n');
  const { code, stderr } = await run({ AGENT_PORT: '70000', LOG_LEVEL: 'loud', NGROK_AUTHTOKEN: 'secret token' });
  expect(code).toBe(2);
  for (const part of [
    'AGENT_PORT="70000"',
    '65535',
    'LOG_LEVEL="loud"',
    'AGENT_DOMAIN="not_a_name"',
    'NGROK_AUTHTOKEN',
  ])
    expect(stderr).toContain(part);
  expect(stderr).not.toContain('secret');
  expect(stderr).not.toContain('    at ');
});

/** Runs a program in a terminal; SIGTERM first fills the terminal. Exits with the program's exit code. */
const STALLED_TERMINAL = `
  mkfifo log; exec 3<>log
  script -qc "tty > tty; timeout --foreground 30 $0 $* & echo \\$! > pid; wait \\$!; echo \\$? > code" -- /dev/null > log &
  fill() { dd if=/dev/zero of=$1 oflag=nonblock 2> /dev/null; }
  trap 'fill log; fill $(cat tty); kill $(cat pid)' TERM
  until [ -s code ]; do sleep 0.05; done
  kill -9 $!; exit $(cat code)`;

it.each([
  ['json', 'a full disk', 'exec "$0" "$@" > /dev/full'],
  ['pretty', 'a terminal that is not read', STALLED_TERMINAL],
])('run starts and stops normally when its log (%s) goes to %s', unless(NO_DEV_FULL), async (format, _to, script) => {
  const { first: port } = await freePorts(1);
  const env = { AGENT_PORT: String(port), LOG_FORMAT: format };
  const agent = AgentProcess.inTest(folder, env, [], ['sh', '-c', script]);
  const isReady = async () => (await fetch(`http://127.0.0.1:${port}/readyz`)).ok;
  await vi.waitFor(async () => expect(await isReady()).toBe(true), { timeout: 20_000 });
  expect(await agent.end()).toBe(0);
});

describe('damaged tunnel files', () => {
  it('are kept under another name, and the last good copy is used', async () => {
    const torn = saved('one', 'two').slice(0, -9);
    write('data/tunnels.json', torn);
    write('data/tunnels.json.bak', saved('one'));
    const agent = await start();
    expect(await domains(await agent.api())).toEqual(['one.localhost']);
    const kept = readdirSync(join(folder, 'data')).filter((name) => name.includes('damaged'));
    expect(kept.map((name) => readFileSync(join(folder, 'data', name), 'utf8'))).toEqual([torn]);
    expect(agent.lines.find(({ level }) => level === 'error')).toMatchObject({ msg: 'damaged file set aside' });
  });
});

describe('the command line', () => {
  it('--help shows every command and the exit codes', async () => {
    const { code, stdout } = await deviceAgent(['--help'], folder);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^ {2}run /m);
    expect(stdout).toMatch(/^ {2}tunnels /m);
    expect(stdout).toContain('Exit codes:');
    const tunnels = await deviceAgent(['tunnels', '--help'], folder);
    expect([tunnels.code, tunnels.stdout.match(/^ {2}(list|start|show|delete)\b/gm)?.length]).toEqual([0, 4]);
  });

  it('--version shows the version and the commit of the build', async () => {
    const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
    const { code, stdout, stderr } = await deviceAgent(['--version'], folder);
    expect([code, stderr]).toEqual([0, '']);
    const [, shown, commit] =
      /^(\S+) \((?:commit ([0-9a-f]{12})(?:-modified)?|built without git, .*)\)\n$/.exec(stdout) ?? [];
    expect(shown).toBe(version);
    if (commit !== undefined) await promisify(execFile)('git', ['cat-file', '-e', commit]);
  });

  it('a version of Node.js that is too old ends every command with one line', async () => {
    const older = "Object.defineProperty(process, 'version', { value: 'v18.20.4' })";
    const program = [`--import=data:text/javascript,${encodeURIComponent(older)}`, CLI];
    for (const args of [[], ['--version'], ['tunnels']]) {
      expect(await outcomeOf(process.execPath, [...program, ...args], folder)).toEqual({
        code: 1,
        stdout: '',
        stderr: expect.stringMatching(
          /^device-agent: Node\.js v18\.20\.4 .* is too old: install Node\.js 20\.19 or newer\n$/,
        ),
      });
    }
  });

  it('unknown commands and options exit with 2', async () => {
    for (const args of [['fly'], ['run', '--fast'], ['tunnels', 'start'], ['tunnels', 'show']]) {
      const { code, stderr } = await deviceAgent(args, folder);
      expect([args, code]).toEqual([args, 2]);
      expect(stderr).toContain('--help');
    }
  });

  it('a closed pipe on standard output is not an error', async () => {
    write('data/tunnels.json', saved(...Array.from({ length: 2000 }, (_, at) => `cam${at}`)));
    expect(await exportTunnels('| head -c 1')).toEqual({ code: 0, stdout: '{', stderr: '' });
  });

  it('a full disk on standard output prints a one-line error', unless(NO_DEV_FULL), async () => {
    expect(await exportTunnels('> /dev/full')).toEqual({ code: 1, stdout: '', stderr: expect.stringMatching(oneLine) });
  });

  it('LOG_FORMAT=pretty logs readable lines', async () => {
    const taken = String(await takenPort()); // makes the start fail
    const { stdout } = await run({ LOG_FORMAT: 'pretty', GATEWAY_HTTPS_PORT: taken });
    expect(stdout).toMatch(/^\[\d\d:\d\d:\d\d\] INFO: local API listening\n {4}url: "http:\/\/127\.0\.0\.1:\d+"\n/);
  });

  it('only --debug shows stack traces', async () => {
    const wrong = { AGENT_PORT: 'x' };
    expect((await deviceAgent(['run'], folder, wrong)).stderr).not.toMatch(/\n {4}at /);
    expect((await deviceAgent(['--debug', 'run'], folder, wrong)).stderr).toMatch(/\n {4}at /);
    expect((await deviceAgent(['run', '--debug'], folder, wrong)).stderr).toMatch(/\n {4}at /);
  });
});
