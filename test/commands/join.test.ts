import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { PortRange } from '../../src/lib/network/port-range.ts';
import { AgentProcess, CLI, deviceAgent, outcomeOf } from '../support/agent-process.ts';
import { inviteTo } from '../support/enrolment.ts';
import { freePorts } from '../support/free-ports.ts';
import { getPublic, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { serving, takenPort } from '../support/loopback.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';

// Every test starts several programs, which takes long on a busy machine.
vi.setConfig({ testTimeout: 240_000 });

let gateway: TestGateway;
let tcpPorts: PortRange;
beforeEach(async () => {
  tcpPorts = await freePorts(6);
  gateway = await startTestGateway({ tcpPorts });
});
afterEach(() => gateway.close());

function folder(): string {
  const path = join(temporaryFolder(), 'device');
  mkdirSync(path);
  return path;
}

/** Starts `device-agent join` in a folder, where it becomes the agent. */
function start(place: string, args: string[], env: Record<string, string> = {}): AgentProcess {
  const device = AgentProcess.inTest(place, { AGENT_CONNECTOR: '', ...env }, args);
  return device;
}

const joinAs = (place: string, code: string, name: string) =>
  start(place, ['join', code, '--name', name, '--no-service']);

async function upstream(answer: string): Promise<number> {
  return serving(createServer((_req, res) => res.end(answer)));
}

async function startTunnel(
  device: AgentProcess,
  body: object,
): Promise<{ url: string; domain: string; notice?: string }> {
  const answer = await fetch(`${await device.api()}/tunnels`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  return (await answer.json()) as { url: string; domain: string; notice?: string };
}

it('join - reads the code from standard input, and says what is missing there', async () => {
  const place = folder();
  const run = (input: string) =>
    new Promise<string>((resolve) => {
      const child = execFile(
        process.execPath,
        [CLI, 'join', '-', '--no-service'],
        { cwd: place },
        (_error, _out, err) => resolve(err),
      );
      child.stdin?.end(input);
    });
  expect(await run('')).toMatch(/no code on standard input/);
  expect(await run('join-damaged\n')).toMatch(/code/);
});

it('two devices join with one code and serve clients at names of their own', async () => {
  const code = await inviteTo(gateway, { tcp_ports: `${tcpPorts.first}-${tcpPorts.first + 1}` });
  const devices = ['the camera', 'the door'].map((answer) => ({ answer, place: folder() }));
  const got: unknown[] = [];
  for (const { answer, place } of devices) {
    const device = joinAs(place, code, 'Cabinet 7');
    await device.logged('remote API online');
    // Every user of the machine may read the arguments, for as long as the agent runs.
    if (process.platform === 'linux')
      expect(readFileSync(`/proc/${device.child.pid}/cmdline`, 'latin1')).not.toContain(code.slice(-8));
    const forwards_to = await upstream(answer);
    const { domain, notice } = await startTunnel(device, { forwards_to, domain: 'web' });
    expect((await getPublic(gateway, `https://${domain}/`)).body).toBe(answer);
    got.push([domain, notice]);
    // What a card image has for all devices, repeatedly.
    writeFileSync(join(place, 'tunnels.yaml'), `tunnels: [{ domain: status, forwards_to: ${forwards_to} }]`);
    const apply = () => deviceAgent(['tunnels', 'apply', 'tunnels.yaml'], place, { AGENT_PORT: port });
    const { port } = new URL(await device.api());
    expect((await apply()).stdout).toContain('\n1 created\n');
    expect((await apply()).stdout).toContain('\n1 unchanged\n');
    const random = await startTunnel(device, { forwards_to });
    expect(random.domain).toMatch(/^[a-z]{6}-cabinet-7(-2)?\.site\.localhost$/);
  }
  const own = 'web-cabinet-7-2.site.localhost';
  expect(got).toEqual([
    ['web.site.localhost', undefined],
    [own, `web.site.localhost belongs to another device; this tunnel is ${own}`],
  ]);
  const [camera, door] = devices.map(({ place }) => readFileSync(join(place, '.env'), 'utf8'));
  expect(camera).toContain(
    'AGENT_DOMAIN=agent-cabinet-7.site.localhost\nAGENT_SITE=site.localhost\nAGENT_NAME=cabinet-7\n',
  );
  expect(camera).toContain('AGENT_CONNECTOR=native\n');
  expect(door).toContain('AGENT_DOMAIN=agent-cabinet-7-2.site.localhost\n');
  const modes = devices.flatMap(({ place }) =>
    ['.env', 'data/enrolment.json', 'data/authtoken'].map((name) => statSync(join(place, name)).mode & 0o777),
  );
  expect(new Set(modes)).toEqual(new Set([0o600]));
  // With the code, a stolen device could let others join.
  for (const { place } of devices) {
    expect(
      readFileSync(join(place, 'data/enrolment.json'), 'utf8') + readFileSync(join(place, '.env'), 'utf8'),
    ).not.toContain(code);
  }
});

it('a device may use the tcp ports of its code, and no others', async () => {
  const allowed = tcpPorts.first + 1;
  const device = joinAs(folder(), await inviteTo(gateway, { tcp_ports: String(allowed) }), 'cam');
  await device.logged('remote API online');
  const forwards_to = await upstream('over tcp');
  const { url } = await startTunnel(device, { protocol: 'tcp', forwards_to });
  expect(url).toBe(`tcp://localhost:${allowed}`);
  const socket = connect(allowed, '127.0.0.1').end('GET / HTTP/1.0\r\n\r\n');
  expect(await text(socket)).toContain('over tcp');
  const refused = await startTunnel(device, { protocol: 'tcp', forwards_to, domain: `localhost:${tcpPorts.first}` });
  expect(refused).toMatchObject({ error_code: 'ERR_NGROK_308' });
});

it('a device that is killed at any step of joining is the same device afterwards', async () => {
  const code = await inviteTo(gateway, { max_uses: 1 });
  const place = folder();
  const has = (name: string) => () => existsSync(join(place, name));
  const steps: Record<string, () => boolean> = {
    'its key is on the disk': has('data/enrolment.json'),
    'the gateway knows it': () => gateway.store.devices.page(null, 1).length > 0,
    'the CA is on the disk': has('gateway-ca.pem'),
    'its settings are on the disk': has('.env'),
    'its settings are complete': () => JSON.parse(readFileSync(join(place, 'data/enrolment.json'), 'utf8')).device,
  };
  for (const [what, isDone] of Object.entries(steps)) {
    const device = joinAs(place, code, 'cam');
    await until(isDone, what, { withinMs: 120_000, everyMs: 2 });
    await device.end('SIGKILL');
  }
  rmSync(join(place, '.env'));
  const device = joinAs(place, code, 'cam');
  expect(await device.logged('remote API online')).toMatchObject({ url: expect.stringContaining('//agent-cam.site.') });
  expect(gateway.store.devices.page(null, 9)).toMatchObject([{ name: 'cam' }]);
  expect(gateway.store.enrolmentKeys.page(null, 9)).toMatchObject([{ uses: 1 }]);
});

it('an agent with AGENT_JOIN_CODE joins at its first start, and only then', async () => {
  const code = await inviteTo(gateway);
  const place = folder();
  writeFileSync(join(place, '.env'), `AGENT_JOIN_CODE=${code}\nAGENT_NAME=cam\n`);
  const device = start(place, [], { AGENT_GATEWAY: 'remote' });
  expect(await device.logged('site joined')).toMatchObject({ device_name: 'cam' });
  await device.logged('remote API online');
  await device.end();
  const [before] = gateway.store.devices.page(null, 9);
  const again = start(place, [], { AGENT_GATEWAY: 'remote' });
  await again.logged('remote API online');
  expect(again.lines.filter(({ msg }) => msg === 'site joined')).toEqual([]);
  expect(gateway.store.devices.page(null, 9)).toEqual([before]);
  expect(JSON.stringify([...device.lines, ...again.lines])).not.toContain(code.slice(-20));
});

it('join without a code takes the new name and authtoken of a device', async () => {
  const place = folder();
  const device = joinAs(place, await inviteTo(gateway), 'cam');
  await device.logged('remote API online');
  await device.end();
  const authtoken = () => readFileSync(join(place, 'data/authtoken'), 'utf8');
  const before = authtoken();
  const [row] = gateway.store.devices.page(null, 1);
  if (!row) throw new Error('no device');
  await gateway.store.database.write(() =>
    gateway.store.devices.update({ ...row, name: 'door', old_name: 'cam', generation: 2 }),
  );
  const renamed = start(place, ['join', '--no-service']);
  expect(await renamed.logged('remote API online')).toMatchObject({
    url: expect.stringContaining('//agent-door.site.'),
  });
  expect(authtoken()).not.toBe(before);
});

it('join --json prints the device alone, says which authtoken it replaces, and leaves git no secret', async () => {
  const place = folder();
  writeFileSync(join(place, '.env'), 'PORT=3000\nNGROK_AUTHTOKEN=of-another-account\n');
  const code = await inviteTo(gateway);
  const listening = ['sh', '-c', 'exec "$0" "$@" 2> said'];
  const device = AgentProcess.inTest(place, {}, ['join', code, '-n', 'cam', '--no-service', '--json'], listening);
  await device.logged('remote API online');
  expect(device.lines[0]).toEqual({
    ...{ id: expect.any(String), name: 'cam', site: 'site.localhost', domain: 'agent-cam.site.localhost' },
    gateway: expect.stringMatching(/^https:\/\//),
  });
  expect(device.lines.slice(1).every(({ level, msg }) => level && msg)).toBe(true);
  expect(readFileSync(join(place, 'said'), 'utf8')).toContain(
    `the authtoken of before is replaced, in ${join(place, '.env')}; sessions go to the gateway of the code now\n`,
  );
  const settings = readFileSync(join(place, '.env'), 'utf8');
  expect(settings).toMatch(/^PORT=3000\n[\s\S]*^NGROK_AUTHTOKEN_FILE=.*\/data\/authtoken$/m);
  await outcomeOf('git', ['init', '--quiet'], place);
  const { stdout } = await outcomeOf('git', ['add', '--all', '--dry-run'], place);
  expect(stdout).toBe("add '.env'\nadd 'gateway-ca.pem'\nadd 'said'\n");
  expect(settings).not.toMatch(/NGROK_AUTHTOKEN=|of-another-account/);

  // The code gives the device no ports.
  const { port } = new URL(await device.api());
  const refused = await deviceAgent(['tcp', '22'], place, { AGENT_PORT: port });
  expect([refused.code, refused.stderr]).toEqual([
    1,
    expect.stringMatching(/ERR_NGROK_356\).*gateway invite --tcp 20000-20099;.* ACL rule .*bind:tcp/),
  ]);
});

it.each([
  ['join', (code: string) => ({ args: ['join', code, '--no-service'], env: {} })],
  ['the first start', (code: string) => ({ args: ['run'], env: { AGENT_JOIN_CODE: code } })],
])('%s sends nothing when the port of the agent is in use', async (_what, by) => {
  const place = folder();
  const { args, env } = by(await inviteTo(gateway));
  const port = await takenPort();
  const outcome = await deviceAgent(args, place, { ...env, AGENT_PORT: String(port) });
  expect([outcome.code, outcome.stderr]).toEqual([
    1,
    expect.stringMatching(new RegExp(`nothing was sent: .*:${port}: the port is in use; .*set AGENT_PORT`)),
  ]);
  expect(gateway.store.enrolmentKeys.page(null, 9)).toMatchObject([{ uses: 0 }]);
  expect(readdirSync(join(place, 'data'))).not.toContain('enrolment.json');
  expect(existsSync(join(place, '.env'))).toBe(false);
});

it('join fails with a reason without a code, with a damaged one and with one that is used up', async () => {
  const place = folder();
  const run = (...args: string[]) => deviceAgent(['join', '--no-service', ...args], place);
  expect(await run()).toMatchObject({ code: 2, stderr: expect.stringContaining('no code: ') });
  expect(await run('join-abc')).toMatchObject({ code: 2, stderr: expect.stringContaining('incomplete or damaged') });
  const code = await inviteTo(gateway, { expires_at: '2026-01-01T00:00:00Z' });
  expect(await run(code)).toMatchObject({ code: 1, stderr: expect.stringContaining('ERR_GATEWAY_CODE_EXPIRED') });
  expect(existsSync(join(place, '.env'))).toBe(false);
});
