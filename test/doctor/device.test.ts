import { spawnSync } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer as createHttp } from 'node:http';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { upstreamAdvice } from '../../src/doctor/advice.ts';
import type { FailedUpdate } from '../../src/doctor/platform.ts';
import { openDataFolder } from '../../src/lib/files/data-folder.ts';
import { VERSION } from '../../src/packaged.ts';
import { AGENT_SERVICE, serviceEnvironment } from '../../src/service/service.ts';
import { loadSettings } from '../../src/settings/agent-settings.ts';
import { CLI } from '../support/agent-process.ts';
import { Disk, NO_MOUNT } from '../support/disk.ts';
import { freePort, serving, takenPort } from '../support/loopback.ts';
import { NO_ROOT, unless } from '../support/requirements.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { examine, keepTunnels } from './examination.ts';

const failure = (detail: RegExp, advice: RegExp | null = /./) => ({
  status: 'failed',
  detail: expect.stringMatching(detail),
  advice: advice === null ? null : expect.stringMatching(advice),
});
const success = (detail: RegExp) => ({ status: 'ok', detail: expect.stringMatching(detail), advice: null });

it('a fresh device has no problems and stays unchanged', async () => {
  const folder = temporaryFolder();
  const found = await examine(folder);
  expect(found('data-folder')).toEqual([success(/data will be created at the first start/)]);
  expect(found('tunnels-file')).toEqual([success(/none yet/)]);
  expect(found('agent')).toEqual([success(/^not running/)]);
  expect(found('default-policies')).toEqual([success(/policies\.json/)]);
  expect(readdirSync(folder)).toEqual([]);
});

it('names a Node.js version that is too old', async () => {
  const folder = temporaryFolder();
  expect((await examine(folder))('node')).toEqual([success(/^v/)]);
  const old = await examine(folder, {}, { nodeVersion: 'v20.18.3' });
  expect(old('node')).toEqual([failure(/v20\.18\.3 is too old/, /20\.19/)]);
});

it('reports unusable default policies', async () => {
  const folder = temporaryFolder();
  writeFileSync(join(folder, 'mine.json'), '{"inbound": [');
  const found = await examine(folder, { DEFAULT_POLICIES: 'mine.json' });
  expect(found('default-policies')).toEqual([failure(/default policies from .*mine\.json: not JSON, line 1/)]);
});

it.each([
  ['running', ['device-agent: running since today', '  at boot: starts'], success(/running since today$/)],
  ['running', ['device-agent: running', '  at boot: does not start (disabled)'], failure(/does not start/, /enable/)],
  ['not installed', ['device-agent: not installed'], failure(/not installed/, /service install/)],
  ['failing', ['device-agent: failing (exit-code)'], failure(/failing/, /journalctl/)],
  ['stopped', ['device-agent: stopped'], failure(/stopped/, /--now/)],
] as const)('the service is %s: %j', async (state, lines, found) => {
  const service = async () => ({ state, lines: [...lines] });
  expect((await examine(temporaryFolder(), {}, { service }))('service')).toEqual([found]);
});

it('says of the last update that a version was given up, while the one before it runs', async () => {
  const folder = temporaryFolder();
  const last = { result: 'returned', from: VERSION, to: '2.0.0', reason: 'it crashed', isGivenUp: true } as const;
  const found = async (update: FailedUpdate | null) =>
    (await examine(folder, {}, { lastUpdate: async () => update }))('update');
  expect(await found(last)).toEqual([
    failure(/^version 2\.0\.0 was given up: it crashed; it is not tried again$/, /update --to 2\.0\.0$/),
  ]);
  expect(await found({ ...last, isGivenUp: false })).toEqual([success(/may be tried again: it crashed$/)]);
  for (const none of [null, { ...last, from: '0.0.1' }]) expect(await found(none)).toEqual([success(/none/)]);
});

it('for the service, uses the settings of its unit: folder, settings file and authtoken', async () => {
  const root = temporaryFolder();
  const load = () => loadSettings(serviceEnvironment(AGENT_SERVICE, { root }), root);
  expect(load).toThrow(/NGROK_AUTHTOKEN is not set, but AGENT_GATEWAY=remote requires it/);
  mkdirSync(join(root, 'etc/device-agent'), { recursive: true });
  writeFileSync(join(root, 'etc/device-agent/authtoken'), '\n');
  expect(load).toThrow(/NGROK_AUTHTOKEN is not set/);
  writeFileSync(join(root, 'etc/device-agent/authtoken'), 'the-authtoken\n');
  writeFileSync(join(root, 'etc/device-agent/settings.env'), 'AGENT_PORT=4141\n');
  const { gateway, api, dataDir } = load();
  expect([gateway.kind === 'remote' && gateway.authtoken(), api.port, dataDir]).toEqual([
    'the-authtoken',
    4141,
    join(root, 'var/lib/device-agent'),
  ]);
});

describe('check of the data folder', () => {
  const check = async (folder: string) => (await examine(folder))('data-folder');

  it('passes when only the agent can write to it, and leaves no file behind', async () => {
    const folder = temporaryFolder();
    await keepTunnels(folder, []);
    expect(await check(folder)).toEqual([success(/mode 0700, .* free$/)]);
    expect(readdirSync(join(folder, 'data'))).toEqual(['tunnels.json']);
  });

  it('fails when other users can write to it', async () => {
    const folder = temporaryFolder();
    mkdirSync(join(folder, 'data'));
    chmodSync(join(folder, 'data'), 0o777);
    expect(await check(folder)).toEqual([failure(/other users can write .*0777/, /^chmod 700 /)]);
  });

  it('fails when DATA_DIR is a file', async () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'data'), '');
    const found = await examine(folder);
    expect(found('data-folder')).toEqual([failure(/is not a folder/)]);
    expect(found('agent')).toEqual([success(/^not running/)]);
  });

  it('fails when a file in it belongs to another user', unless(NO_ROOT), async () => {
    const folder = temporaryFolder();
    await keepTunnels(folder, []);
    chownSync(join(folder, 'data', 'tunnels.json'), 4711, 4711);
    expect(await check(folder)).toEqual([failure(/tunnels\.json belongs to user 4711/, /^sudo chown -R 0 /)]);
  });

  it('fails when the disk is nearly full', unless(NO_MOUNT), async () => {
    const folder = temporaryFolder();
    symlinkSync(Disk.mount('size=1m').path, join(folder, 'data'));
    chmodSync(join(folder, 'data'), 0o700);
    expect(await check(folder)).toEqual([failure(/nearly full: 1 MB free/, /df -h/)]);
  });

  it('fails when the disk is read-only', unless(NO_MOUNT), async () => {
    const folder = temporaryFolder();
    const disk = Disk.mount('size=32m');
    chmodSync(disk.path, 0o700);
    symlinkSync(disk.path, join(folder, 'data'));
    disk.remount('ro');
    expect(await check(folder)).toEqual([failure(/cannot write to .*EROFS/, /remount,rw/)]);
  });
});

describe('check of the saved tunnels', () => {
  const check = async (folder: string) => (await examine(folder))('tunnels-file');
  const write = (folder: string, name: string, text: string) => writeFileSync(join(folder, 'data', name), text);

  it('counts the tunnels', async () => {
    const folder = temporaryFolder();
    await keepTunnels(folder, [{}, { domain: 'two.localhost' }]);
    expect(await check(folder)).toEqual([success(/^2 tunnels in /)]);
  });

  it('names the copy when the file is damaged', async () => {
    const folder = temporaryFolder();
    await keepTunnels(folder, [{}]);
    write(folder, 'tunnels.json.bak', '{"version":1,"tunnels":[]}');
    write(folder, 'tunnels.json', '{"version":1,"tun');
    expect(await check(folder)).toEqual([failure(/tunnels\.json is damaged .*copy .*has 0 tunnels/, /next start/)]);
    expect(readdirSync(join(folder, 'data'))).toEqual(['tunnels.json', 'tunnels.json.bak']);
  });

  it('advises to restore a backup when file and copy are damaged', async () => {
    const folder = temporaryFolder();
    await keepTunnels(folder, [{}]);
    write(folder, 'tunnels.json', '');
    write(folder, 'tunnels.json.bak', '\0\0\0');
    expect(await check(folder)).toEqual([failure(/tunnels\.json is damaged .*no good copy/, /restore/)]);
  });

  it('names an unusable tunnel', async () => {
    const folder = temporaryFolder();
    await keepTunnels(folder, [{}]);
    const text = readFileSync(join(folder, 'data', 'tunnels.json'), 'utf8');
    const edited = text.replace('\n]', ',\n{"id":"b"}\n]');
    write(folder, 'tunnels.json', edited);
    const kept = success(/^1 tunnel in/);
    expect(await check(folder)).toEqual([
      kept,
      failure(
        /tunnels\[1\] does not match its checksum; if you edited the file, delete .*"checksums"/,
        /starts without/,
      ),
    ]);
    write(folder, 'tunnels.json', edited.replace(/"checksums".*\n/, ''));
    expect(await check(folder)).toEqual([kept, failure(/tunnels\[1\]\.url: .*/, /before the next start/)]);
  });

  it('counts a damaged tunnel that the copy has', async () => {
    const folder = temporaryFolder();
    await keepTunnels(folder, [{}, { domain: 'two.localhost' }]);
    const text = readFileSync(join(folder, 'data', 'tunnels.json'), 'utf8');
    write(folder, 'tunnels.json.bak', text);
    write(folder, 'tunnels.json', text.replace('localhost:8001', 'localhost:8003'));
    expect(await check(folder)).toEqual([
      success(/^1 tunnel in/),
      failure(/tunnels\[0\] does not match/, /takes 1 tunnel from .*tunnels\.json\.bak/),
    ]);
  });

  it('fails when the copy is damaged', async () => {
    const folder = temporaryFolder();
    await keepTunnels(folder, [{}]);
    write(folder, 'tunnels.json.bak', '\0\0\0');
    expect(await check(folder)).toEqual([success(/^1 tunnel in/), failure(/tunnels\.json\.bak is damaged/)]);
  });

  it('fails when a newer version wrote the file, and skips the checks that need it', async () => {
    const folder = temporaryFolder();
    await keepTunnels(folder, []);
    write(folder, 'tunnels.json', '{"version":7,"tunnels":[]}');
    const found = await examine(folder);
    expect(found('tunnels-file')).toEqual([failure(/newer version of device-agent/, null)]);
    // Skipped checks do not count as problems.
    expect(found('upstreams')).toEqual([
      { status: 'skipped', detail: expect.stringMatching(/cannot read/), advice: null },
    ]);
  });

  it('reports the file of a newer version for a gateway elsewhere, whose connector is loaded meanwhile', async () => {
    const folder = temporaryFolder();
    await keepTunnels(folder, []);
    write(folder, 'tunnels.json', '{"version":7,"tunnels":[]}');
    const env = { PATH: process.env.PATH, NGROK_AUTHTOKEN: 'x', NGROK_SERVER_ADDR: '127.0.0.1:1', AGENT_PORT: '0' };
    const doctor = spawnSync(process.execPath, [CLI, 'doctor', '--json'], { cwd: folder, env, encoding: 'utf8' });
    expect(JSON.parse(doctor.stdout).findings).toContainEqual(
      expect.objectContaining({ check: 'tunnels-file', status: 'failed' }),
    );
  });
});

describe('check of the ports', () => {
  it('lists free ports, and names the setting of a port in use', async () => {
    const folder = temporaryFolder();
    const port = await freePort();
    expect((await examine(folder, { AGENT_PORT: String(port) }))('ports')).toEqual([success(/^free: \d+$/)]);
    const taken = String(await takenPort());
    const found = await examine(folder, { AGENT_PORT: taken, GATEWAY_HTTPS_PORT: taken });
    expect(found('ports')).toEqual([
      failure(/^the local API cannot listen on 127\.0\.0\.1:\d+: the port is in use/, /AGENT_PORT/),
      failure(/^the embedded gateway's https cannot listen/, /GATEWAY_HTTPS_PORT/),
    ]);
  });

  it('names AGENT_HOST when it is an address of another machine', async () => {
    const port = String(await freePort());
    const found = await examine(temporaryFolder(), { AGENT_HOST: '192.0.2.1', AGENT_PORT: port });
    expect(found('ports')).toEqual([failure(/192\.0\.2\.1/, /AGENT_HOST/)]);
  });
});

it('reports an agent on the same data folder whose API is unreachable', async () => {
  const folder = temporaryFolder();
  const held = await openDataFolder(join(folder, 'data'));
  onTestFinished(() => held.release());
  const found = await examine(folder, { AGENT_PORT: String(await freePort()) });
  expect(found('agent')).toEqual([
    failure(/running on .* its API is unreachable: .*: connect ECONNREFUSED \S+$/, /restart it.*with its settings/),
  ]);
});

describe('check of the clock', () => {
  it('fails when the clock was never set', async () => {
    const found = await examine(temporaryFolder(), {}, { now: () => Date.parse('1970-01-01T00:00:20Z') });
    expect(found('clock')).toEqual([failure(/^shows 1970-01-01.*never set/, /timedatectl/)]);
  });

  it('compares the clock with the Date header of a server', async () => {
    const server = createHttp((_request, response) => response.end());
    const dateFrom = `http://127.0.0.1:${await serving(server)}`;
    const folder = temporaryFolder();
    expect((await examine(folder, {}, { dateFrom }))('clock')).toEqual([success(/within a minute of http/)]);
    const fast = await examine(folder, {}, { dateFrom, now: () => Date.now() + 3_600_000 });
    expect(fast('clock')).toEqual([failure(/ahead of http/, /timedatectl/)]);
    const slow = await examine(folder, {}, { dateFrom, now: () => Date.now() - 3_600_000 });
    expect(slow('clock')).toEqual([failure(/behind http/)]);
  });
});

describe('check of the upstreams', () => {
  it('reports upstreams that answer, are unreachable, speak another protocol or are not allowed', async () => {
    const folder = temporaryFolder();
    const [other, down] = [await takenPort(), await freePort()];
    const web = createHttp((_request, response) => response.end());
    await serving(web);
    const plain = web.address() as { port: number };
    const socket = join(folder, 'app.sock');
    const app = createHttp((_request, response) => response.end());
    await new Promise<void>((resolve) => app.listen(socket, resolve));
    onTestFinished(() => void app.close());
    const upstreams = [
      `localhost:${plain.port}`,
      `http://127.0.0.1:${plain.port}`,
      `unix:${socket}`,
      `127.0.0.1:${down}`,
      '8.8.8.8:53',
      `https://127.0.0.1:${down}`,
      `https://127.0.0.1:${plain.port}`,
      `localhost:${other}`,
    ];
    await keepTunnels(
      folder,
      upstreams.map((forwards_to) => ({ forwards_to })),
    );
    expect((await examine(folder))('upstreams')).toEqual([
      success(/^3 answer$/),
      failure(/^127\.0\.0\.1:\d+ does not answer .*ECONNREFUSED/, /start the upstream/),
      failure(/^8\.8\.8\.8:53: upstream not allowed/, /AGENT_ALLOW_UPSTREAMS/),
      failure(/^https:\/\/127\.0\.0\.1:\d+ does not answer .*ECONNREFUSED/, /start the upstream/),
      failure(/^https:\/\/127\.0\.0\.1:\d+ does not speak TLS$/, /to http:\/\//),
      failure(/^localhost:\d+ closes connections without an answer to HTTP/, /tunnels change/),
    ]);
    expect(upstreamAdvice('ERR_AGENT_UPSTREAM_UNKNOWN')).toMatch(/^check the name/);
  });

  it('summarises more than ten problems', async () => {
    const folder = temporaryFolder();
    const forwarded = Array.from({ length: 14 }, (_, at) => ({ forwards_to: `8.8.8.8:${at + 1}` }));
    await keepTunnels(folder, forwarded);
    const lines = (await examine(folder))('upstreams');
    expect([lines.length, lines.at(-1)?.detail]).toEqual([11, 'and 4 more']);
  });
});
