import { afterAll, describe, expect, it } from 'vitest';
import { VERSION } from '../../src/packaged.ts';
import { installProgram, NEWER_SCHEMA, publishOn, RELEASES, TRIAL, updated } from '../support/machine-releases.ts';
import { unless } from '../support/requirements.ts';
import { publisherKey } from '../support/signed-release.ts';
import { SystemdMachine } from '../support/systemd-machine.ts';
import { until } from '../support/until.ts';

const booted = await SystemdMachine.boot();
const NO_SYSTEMD_MACHINE = booted === null ? 'root, systemd and namespaces are required' : null;
const TUNNEL = 'https://demo.localhost:8443';

/** What the file of tunnels is in a later version. */
const NEWER_TUNNELS = '{"version":99,"tunnels":"in another format"}';
/** What a version is that writes tunnels in another format, notifies systemd, and never answers. */
const SILENT = `cat > dist/cli.js <<'END'
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
if (process.argv[2] === '--version') console.log(JSON.parse(readFileSync(new URL('../package.json', import.meta.url))).version);
else {
  writeFileSync(process.env.DATA_DIR + '/tunnels.json', '${NEWER_TUNNELS}');
  execFileSync('systemd-notify', ['--ready']);
  setInterval(() => {}, 1000);
}
END`;

/** A tunnel of another program, with the real SDK, and what it forwards to. $0: name of it, $1: authtoken, $2: CA */
const SDK_TUNNEL = `
const { createServer } = require('node:http');
const ngrok = require('/home/pi/device-agent/node_modules/@ngrok/ngrok');
const [domain, authtoken, ca] = process.argv.slice(1);
createServer((_, res) => res.end('seen')).listen(8002, '127.0.0.1');
(async () => {
  const caCert = require('node:fs').readFileSync(ca);
  const builder = new ngrok.SessionBuilder().authtoken(authtoken).serverAddr('connect.gateway.example.com:443').caCert(caCert);
  const listener = await (await builder.connect()).httpEndpoint().domain(domain).listen();
  await listener.forward('http://127.0.0.1:8002');
})();`;

/** Asks for a page all the time, and writes each status and how long it took; 000: no answer. $0: its URL, $1: CA */
const ASK = `rm -f /tmp/answers; while [ ! -e /tmp/asked-enough ]; do
curl -s -o /dev/null -w '%{http_code} %{time_total}\n' --max-time 20 --cacert "$1" "$0" >> /tmp/answers; sleep 0.05; done`;

/** What a version is whose gateway never has its agents back, as far as it says. */
const NO_SESSIONS = "grep -l 'live.sessions().length' dist/*.js | xargs sed -i 's/live.sessions().length/0/'";

describe('device-agent update under systemd', {
  timeout: 600_000,
  shuffle: false,
  ...unless(NO_SYSTEMD_MACHINE),
}, () => {
  const machine = booted as SystemdMachine;
  const { key, keySet } = publisherKey();
  const deviceAgent = (...args: string[]) => machine.run('device-agent', ...args);
  const version = async () => JSON.parse((await deviceAgent('status', '--json')).stdout).version;
  const tunnels = async () =>
    JSON.parse((await deviceAgent('tunnels', '--json')).stdout).map(({ url }: { url: string }) => url);
  const processes = async () => (await machine.run('pgrep', '-fc', 'dist/cli.js run')).stdout.trim();
  afterAll(() => booted?.end());

  const publish = (name: string, change?: string) => publishOn(machine, key, name, change);

  it('keeps a version that works, goes back from one that is never online, and from one that crashes later', async () => {
    await installProgram(machine, keySet);
    expect(await deviceAgent('service', 'install')).toMatchObject({ code: 0 });
    await machine.write('/etc/device-agent/settings.env', `AGENT_GATEWAY=embedded\nAGENT_UPDATE_FROM=${RELEASES}\n`);
    expect(await machine.run('systemctl', 'start', 'device-agent')).toMatchObject({ code: 0 });
    expect(await deviceAgent('tunnels', 'start', '8001', '-d', 'demo.localhost')).toMatchObject({ code: 0 });
    expect(await version()).toBe(VERSION);

    await publish('90.0.0');
    const checked = await deviceAgent('update', '--check');
    expect(checked).toMatchObject({
      code: 0,
      stdout: expect.stringContaining(`version 90.0.0 is available, ${VERSION} is installed`),
    });
    const updating = updated(machine);
    // Its watcher is killed on the way; systemd starts it again.
    const isTried = async () => (await machine.run('grep', '-q', '"state": "trying"', TRIAL)).code === 0;
    await until(isTried, 'the version is tried', { withinMs: 120_000, everyMs: 50 });
    await machine.run('systemctl', 'kill', '-s', 'KILL', 'device-agent-update');
    expect(await updating).toContain(`updated from ${VERSION} to 90.0.0\nexit code 0`);
    expect([await version(), await tunnels(), await processes()]).toEqual(['90.0.0', [TUNNEL], '1']);

    await publish('91.0.0', SILENT);
    expect(await updated(machine)).toContain(
      'went back from 91.0.0 to 90.0.0: it did not answer within 120 s\nexit code 1',
    );
    expect([await version(), await tunnels(), await processes()]).toEqual(['90.0.0', [TUNNEL], '1']);
    // The old version cannot read what the new one has written; its own file is back, and the other one beside it.
    const newer = await machine.run('cat', '/var/lib/device-agent/tunnels.json.newer');
    expect(newer.stdout).toBe(NEWER_TUNNELS);
    expect(await updated(machine)).toContain('91.0.0 was given up on this device');
    const journal = await machine.journal('device-agent-update');
    expect(journal.match(/given up, going back/g)).toHaveLength(1);

    await publish('92.0.0');
    expect(await updated(machine)).toContain('updated from 90.0.0 to 92.0.0');
    for (let crash = 0; crash < 3; crash++) {
      const before = await machine.property('device-agent', 'MainPID');
      await machine.run('kill', '-SEGV', before);
      const isAnother = async () => {
        const now = await machine.property('device-agent', 'MainPID');
        return now !== '0' && now !== before && (await machine.property('device-agent', 'ActiveState')) === 'active';
      };
      await until(isAnother, 'another process after the crash', { withinMs: 120_000, everyMs: 100 });
    }
    const isBack = async () => (await version().catch(() => null)) === '90.0.0';
    await until(isBack, 'the version before', { withinMs: 120_000, everyMs: 500 });
    const isOver = async () => (await machine.run('test', '-e', TRIAL)).code !== 0;
    await until(isOver, 'the end of the update', { withinMs: 120_000, everyMs: 500 });
    expect([await tunnels(), await processes()]).toEqual([[TUNNEL], '1']);
    expect(await machine.journal('device-agent-update')).toMatch(
      /92\.0\.0 given up, going back to 90\.0\.0: it crashed 3 times/,
    );
  });

  it('updates a gateway and its agent together from that gateway, and loses nothing when it goes back, or cannot', async () => {
    const gatewayFolder = '/var/lib/device-agent-gateway/gateway';
    const mark = `${gatewayFolder}/update-trial`;
    const gateway = async (...args: string[]) => JSON.parse((await deviceAgent('gateway', ...args, '--json')).stdout);
    const keys = async () => (await gateway('api-key', 'list')).map((key: { description: string }) => key.description);
    const ca = `${gatewayFolder}/ca.pem`;
    const gatewayVersion = async () => {
      const url = 'https://api.gateway.example.com/openapi.json';
      return JSON.parse((await machine.run('curl', '-sS', '--cacert', ca, url)).stdout).info.version;
    };
    const isOnline = async () => (await gateway('devices'))[0].online_since !== null;
    const names = ['connect.gateway', 'api.gateway', 'sdk.gateway', 'agent-cabinet.site', 'camera.site'];
    const hosts = names.map((name) => `127.0.0.1 ${name}.example.com\n`).join('');
    await machine.write('/etc/hosts', `127.0.0.1 localhost\n${hosts}`);
    await machine.write('/etc/nsswitch.conf', 'hosts: files\n');
    await machine.run('rm', '-f', '/etc/resolv.conf');
    await machine.write(
      '/etc/device-agent-gateway/settings.env',
      'GATEWAY_DOMAIN=gateway.example.com\nGATEWAY_HTTPS_PORT=443\nGATEWAY_HTTP_PORT=80\nGATEWAY_ACME_DIRECTORY=local\n',
    );
    expect(await deviceAgent('service', 'install', '--gateway')).toMatchObject({ code: 0 });
    const { code } = await gateway('invite', '--site', '*.site.example.com');
    await machine.write('/etc/device-agent/settings.env', 'AGENT_UPDATE_FROM=gateway\n');
    expect(await deviceAgent('join', code, '--name', 'cabinet')).toMatchObject({ code: 0, stderr: '' });
    expect(await deviceAgent('tunnels', 'start', '8001', '-d', 'camera')).toMatchObject({ code: 0 });
    const { api_key: apiKey } = await gateway('api-key', 'create', '--description', 'first');
    const created = await machine.run(
      ...['curl', '-sS', '--cacert', ca, '-H', `authorization: Bearer ${apiKey}`, '-H', 'ngrok-version: 2'],
      ...['-H', 'content-type: application/json', '-d', '{}', 'https://api.gateway.example.com/credentials'],
    );
    const { token } = JSON.parse(created.stdout);
    await machine.run(
      ...['systemd-run', '--quiet', '--unit=sdk-tunnel', SystemdMachine.NODE, '-e', SDK_TUNNEL],
      ...['sdk.gateway.example.com', token, ca],
    );
    const sdkUrl = 'https://sdk.gateway.example.com/';
    const isSdkOnline = async () => (await machine.run('curl', '-sS', '--cacert', ca, sdkUrl)).stdout === 'seen';
    await until(isSdkOnline, 'the tunnel of the SDK is online', { withinMs: 60_000, everyMs: 200 });

    /** Publishes a version, and approves it. */
    const approve = async (name: string, change?: string) => {
      await publish(name, change);
      const added = await deviceAgent('gateway', 'releases', 'add', RELEASES);
      expect(added).toMatchObject({ code: 0, stdout: expect.stringContaining(`get version ${name} from now on`) });
    };
    await approve('93.0.0');
    const asking = machine.run('sh', '-c', ASK, sdkUrl, ca);
    expect(await updated(machine)).toContain('updated from 90.0.0 to 93.0.0\nexit code 0');
    await until(isSdkOnline, 'the tunnel of the SDK is online again', { withinMs: 60_000, everyMs: 200 });
    await machine.run('touch', '/tmp/asked-enough');
    await asking;
    const answers = (await machine.run('cat', '/tmp/answers')).stdout.trim().split('\n');
    const slowest = Math.max(...answers.map((line) => Number(line.split(' ')[1])));
    const counts: Record<string, number> = {};
    for (const line of answers) counts[line.slice(0, 3)] = (counts[line.slice(0, 3)] ?? 0) + 1;
    const said = Object.entries(counts).map(([status, count]) => `${count} with ${status}`);
    process.stdout.write(`  measured: tunnel of an SDK: ${said.join(', ')}, the slowest in ${slowest.toFixed(1)} s\n`);
    // It waits for its agent, or is told to come again; while the ports are closed, there is no answer.
    expect(Object.keys(counts).filter((status) => !['000', '200', '503'].includes(status))).toEqual([]);
    expect(counts['200']).toBeGreaterThan(20);
    await machine.run('systemctl', 'stop', 'sdk-tunnel');
    expect([await version(), await gatewayVersion(), await isOnline()]).toEqual(['93.0.0', '93.0.0', true]);
    expect(await gateway('releases')).toMatchObject([{ version: '93.0.0', devices: { confirmed: 1 } }]);
    expect((await machine.run('ls', '/var/lib/device-agent-update/gateway-backup.tar.gz')).code).toBe(0);

    await approve('94.0.0', `${NEWER_SCHEMA}; ${NO_SESSIONS}`);
    const updating = updated(machine);
    const isTried = async () =>
      (await machine.run('test', '-e', mark)).code === 0 && (await gatewayVersion()) === '94.0.0';
    await until(() => isTried().catch(() => false), 'the version is tried', { withinMs: 120_000, everyMs: 100 });
    const refused = await deviceAgent('gateway', 'api-key', 'create', '--description', 'meanwhile');
    expect(refused).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('an update of the gateway is being tried'),
    });
    expect(await updating).toContain(
      'went back from 94.0.0 to 93.0.0: 0 of 1 agents were back within 120 s\nexit code 1',
    );
    expect([await version(), await gatewayVersion(), await keys()]).toEqual(['93.0.0', '93.0.0', ['first']]);
    await until(isOnline, 'the device is online', { withinMs: 60_000, everyMs: 200 });
    const left = (await machine.run('ls', gatewayFolder)).stdout.split('\n');
    expect([left.includes('gateway.db.newer'), left.includes('update-trial')]).toEqual([true, false]);
    expect(await deviceAgent('gateway', 'api-key', 'create', '--description', 'second')).toMatchObject({ code: 0 });

    await approve('95.0.0', NEWER_SCHEMA);
    expect(await updated(machine)).toContain('updated from 93.0.0 to 95.0.0\nexit code 0');
    expect(await deviceAgent('gateway', 'api-key', 'create', '--description', 'third')).toMatchObject({ code: 0 });
    for (let crash = 0; crash < 3; crash++) {
      const before = await machine.property('device-agent-gateway', 'MainPID');
      await machine.run('kill', '-SEGV', before);
      const isAnother = async () => !['0', before].includes(await machine.property('device-agent-gateway', 'MainPID'));
      await until(isAnother, 'another process after the crash', { withinMs: 120_000, everyMs: 100 });
    }
    const isOver = async () => (await machine.run('test', '-e', TRIAL)).code !== 0;
    await until(isOver, 'the end of the update', { withinMs: 120_000, everyMs: 500 });
    const isBackAs95 = async () => (await gatewayVersion().catch(() => null)) === '95.0.0';
    await until(isBackAs95, 'the gateway after its last crash', { withinMs: 60_000, everyMs: 200 });
    expect(await keys()).toEqual(['third', 'second', 'first']);
    expect(await machine.journal('device-agent-update')).toMatch(
      /95\.0\.0 stays: it crashed 3 times .*: it has changed the schema of the database/,
    );
  });
});
