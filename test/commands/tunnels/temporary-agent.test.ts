import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { connect, createServer as createTcpServer } from 'node:net';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { expect, it, onTestFinished } from 'vitest';
import { AgentProcess, CLI, deviceAgent } from '../../support/agent-process.ts';
import { inviteTo } from '../../support/enrolment.ts';
import { freePorts } from '../../support/free-ports.ts';
import { agentSettings, getPublic, startTestGateway } from '../../support/gateway.ts';
import { startHttpService } from '../../support/http-service.ts';
import { exchange } from '../../support/https-exchange.ts';
import { serving } from '../../support/loopback.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

/** `device-agent http` and the like in a folder of its own, where no agent runs. */
class Command {
  stdout = '';
  stderr = '';
  readonly temporary = temporaryFolder();
  readonly folder = temporaryFolder();
  readonly child: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #ended: Promise<unknown[]>;

  constructor(args: string[], env: Record<string, string> = {}, input = '') {
    // Nothing listens at port 1.
    const settings = { PATH: process.env.PATH, TMPDIR: this.temporary, AGENT_PORT: '1', ...env };
    this.child = spawn(process.execPath, [CLI, ...args], { cwd: this.folder, env: settings });
    this.#ended = once(this.child, 'close');
    this.child.stdin.end(input);
    this.child.stdout.setEncoding('utf8').on('data', (part) => {
      this.stdout += part;
    });
    this.child.stderr.setEncoding('utf8').on('data', (part) => {
      this.stderr += part;
    });
    onTestFinished(() => void this.child.kill('SIGKILL'));
  }

  /** Resolves with the URL, once requests are shown. */
  async url(): Promise<string> {
    const isOver = () => this.stderr.includes('Ctrl-C ends') || this.child.exitCode !== null;
    await until(isOver, 'the tunnel', { everyMs: 10 });
    return /^(\S+) -> /.exec(this.stdout)?.[1] ?? this.stderr;
  }

  async shows(part: string | RegExp): Promise<void> {
    const isShown = () => (typeof part === 'string' ? this.stdout.includes(part) : part.test(this.stdout));
    await until(isShown, String(part), { everyMs: 10 });
  }

  /** Resolves with the exit code, and what is left in its folders. */
  async end(signal: NodeJS.Signals | null = 'SIGINT'): Promise<[code: unknown, left: string[]]> {
    if (signal !== null) this.child.kill(signal);
    const [code] = await this.#ended;
    return [code, [...readdirSync(this.temporary), ...readdirSync(this.folder)]];
  }
}

/** Of an agent's API that answers; of the command, where it is free. */
const FREE = { AGENT_PORT: '0' };
const ENDED = [0, []];

async function upstream(): Promise<string> {
  const service = await startHttpService((request, res) => res.end(`you asked for ${request.url}`));
  onTestFinished(() => service.close());
  return new URL(service.url).port;
}

it('http without an agent and an authtoken opens a tunnel for this machine, shows its requests and leaves nothing', async () => {
  const port = await upstream();
  const command = new Command(['http', port, '-d', 'demo'], FREE);
  const url = await command.url();
  expect(url).toMatch(/^https:\/\/demo\.localhost:\d+$/);
  expect(command.stdout).toContain(`${url} -> localhost:${port}\n`);
  expect(command.stderr).toMatch(
    /^only this machine reaches it; to go public: .*NGROK_AUTHTOKEN.*--gateway.*--join.*\n/,
  );
  const [, ca = ''] = /--cacert (\S+) https/.exec(command.stderr) ?? [];
  expect(readFileSync(ca, 'utf8')).toContain('BEGIN CERTIFICATE');
  expect(String((await exchange(`${url}/hello`)).body)).toBe('you asked for /hello');
  await command.shows(/ GET +200 .* \/hello\n/);
  expect(await command.end()).toEqual(ENDED);
  await expect(exchange(url)).rejects.toThrow('ECONNREFUSED');
});

it('http without an agent ends when nobody reads its output any more', async () => {
  const command = new Command(['http', await upstream(), '--json'], FREE);
  await until(() => command.stdout.includes('\n'), 'the tunnel', { everyMs: 10 });
  const { url } = JSON.parse(command.stdout);
  command.child.stdout.destroy();
  await until(
    () =>
      exchange(url).then(
        () => command.child.exitCode !== null,
        () => true,
      ),
    'the end',
    { everyMs: 50 },
  );
  expect(await command.end(null)).toEqual(ENDED);
});

it('tcp without an agent forwards bytes, until its terminal closes', async () => {
  const port = await serving(createTcpServer((socket) => socket.pipe(socket)));
  const { first } = await freePorts(1);
  const command = new Command(['tcp', String(port)], { ...FREE, GATEWAY_TCP_PORTS: `${first}-${first}` });
  expect(await command.url()).toBe(`tcp://localhost:${first}`);
  const client = connect(first, '127.0.0.1');
  client.end('echo');
  expect(await text(client)).toBe('echo');
  expect(await command.end('SIGHUP')).toEqual(ENDED);
});

it('http without an agent goes to the gateway of the settings, or of the command line with the authtoken on standard input', async () => {
  const gateway = await startTestGateway();
  onTestFinished(() => gateway.close());
  const port = await upstream();
  const { sessionAddress, caFile, authtoken } = gateway;
  const named = ['--gateway', `https://${sessionAddress}`, '--gateway-ca', caFile, '--token', '-'];
  const commands = [
    new Command(['http', port, '-d', 'one.localhost'], { ...FREE, ...agentSettings(gateway) }),
    new Command(['http', port, '-d', 'two.localhost', ...named], FREE, `${authtoken}\n`),
  ];
  for (const [at, name] of ['one', 'two'].entries()) {
    const url = `https://${name}.localhost`;
    expect(await commands[at]?.url()).toContain(url);
    expect((await getPublic(gateway, `${url}/public`)).body).toBe('you asked for /public');
    await commands[at]?.shows(/ GET +200 .* \/public\n/);
    expect(commands[at]?.stderr).not.toContain('only this machine');
    expect(await commands[at]?.end('SIGTERM')).toEqual(ENDED);
  }
  await until(() => [...gateway.sessions.sessions].length === 0, 'the end of the sessions');
});

it('http --join joins a site as long as it runs, and hides the code from other users', async () => {
  const gateway = await startTestGateway();
  onTestFinished(() => gateway.close());
  const code = await inviteTo(gateway);
  const args = ['http', await upstream(), '-d', 'web', '--join', code];
  const command = new Command(args, { ...FREE, AGENT_NAME: 'laptop' });
  const url = await command.url();
  expect(url).toMatch(/^https:\/\/web\.site\.localhost/);
  expect((await getPublic(gateway, `${url}/public`)).body).toBe('you asked for /public');
  if (process.platform === 'linux')
    expect(readFileSync(`/proc/${command.child.pid}/cmdline`, 'latin1')).not.toContain(code.slice(-8));
  expect(gateway.store.devices.namesAt('site.localhost')).toEqual(['laptop']);
  expect(await command.end()).toEqual(ENDED);
  expect(gateway.store.devices.namesAt('site.localhost')).toEqual([]);
});

it('http without an agent says why the gateway refuses it, and leaves nothing', async () => {
  const gateway = await startTestGateway();
  onTestFinished(() => gateway.close());
  const settings = { ...FREE, ...agentSettings(gateway), NGROK_AUTHTOKEN: 'wrong' };
  const command = new Command(['http', '8001'], settings);
  expect(await command.end(null)).toEqual([1, []]);
  expect(command.stderr).toMatch(/^device-agent: no session with .*ERR_NGROK_\d+.*; set NGROK_AUTHTOKEN/m);
});

it('http does not send the authtoken of the command line to a gateway that the .env of a project names', async () => {
  const folder = temporaryFolder();
  writeFileSync(join(folder, '.env'), 'PORT=3000\nNGROK_SERVER_ADDR=127.0.0.1:9\n');
  const { code, stderr } = await deviceAgent(['http', '8001', '--token', 'mine'], folder, { AGENT_PORT: '1' });
  expect([code, stderr]).toEqual([2, expect.stringContaining('would choose where NGROK_AUTHTOKEN is sent')]);
});

it('http does not start another agent beside one that uses the data of this folder', async () => {
  const agent = AgentProcess.inTest(temporaryFolder());
  await agent.ready();
  const { code, stderr } = await deviceAgent(['http', '8001'], agent.folder, { AGENT_PORT: '1' });
  expect([code, stderr]).toEqual([3, expect.stringContaining('no agent answers')]);
});

it('http says of a tunnel that is open already that it is, and succeeds; of another one, how to change it', async () => {
  const folder = join(temporaryFolder(), 'agent');
  mkdirSync(folder);
  const agent = AgentProcess.inTest(folder);
  const env = { AGENT_PORT: new URL(await agent.ready()).port };
  const start = (...args: string[]) => deviceAgent(['http', ...args, '-d', 'demo'], folder, env);
  const first = await start('8001');
  const again = await start('localhost:8001');
  expect(again).toMatchObject({ code: 0, stdout: first.stdout, stderr: expect.stringContaining('open already') });
  const differing = await start('8002');
  expect([differing.code, differing.stderr]).toEqual([1, expect.stringContaining('ERR_AGENT_DOMAIN_IN_USE')]);
  expect((await start('8001', '--pooling')).code).toBe(1);
});
