import { afterAll, describe, expect, it } from 'vitest';
import { unless } from '../support/requirements.ts';
import { SystemdMachine } from '../support/systemd-machine.ts';
import { until } from '../support/until.ts';

const booted = await SystemdMachine.boot();
const NO_SYSTEMD_MACHINE = booted === null ? 'root, systemd and namespaces are required' : null;
const CA = '/var/lib/device-agent-gateway/gateway/ca.pem';
const GATEWAY_SETTINGS =
  'GATEWAY_DOMAIN=gateway.example.com\nGATEWAY_HTTPS_PORT=443\nGATEWAY_HTTP_PORT=80\nGATEWAY_ACME_DIRECTORY=local\n';
/** Instead of DNS: the machine has no network. */
const HOSTS = [
  'connect',
  'api',
  'agent-cabinet-7.sitea',
  'camera.sitea',
  'agent-cabinet-8.sitea',
  'agent-cabinet-9.siteb',
]
  .map((name) => `127.0.0.1 ${name.includes('site') ? `${name}.example.com` : `${name}.gateway.example.com`}\n`)
  .join('');

describe('a device that joins with the service', {
  timeout: 300_000,
  shuffle: false,
  ...unless(NO_SYSTEMD_MACHINE),
}, () => {
  const machine = booted as SystemdMachine;
  const curl = (url: string) => machine.run('curl', '-sS', '--cacert', CA, url);
  afterAll(() => booted?.end());
  let code: string;

  it('gateway invite prints a code on the machine of the gateway', async () => {
    await machine.write('/etc/hosts', `127.0.0.1 localhost\n${HOSTS}`);
    await machine.write('/etc/nsswitch.conf', 'hosts: files\n');
    // A resolver that cannot be reached takes its time.
    await machine.run('rm', '-f', '/etc/resolv.conf');
    await machine.write('/etc/device-agent-gateway/settings.env', GATEWAY_SETTINGS);
    await machine.deviceAgent('service', 'install', '--gateway');
    const invited = await machine.deviceAgent('gateway', 'invite', '--site', '*.sitea.example.com', '--uses', '50');
    expect(invited.code).toBe(0);
    code = /echo (join-\S+) \|/.exec(invited.stdout)?.[1] ?? '';
  });

  it('join installs the service, waits until it is online and prints its URL; a client reaches a tunnel', async () => {
    const began = performance.now();
    const joined = await machine.deviceAgent('join', code, '--name', 'cabinet-7');
    expect([joined.code, joined.stderr]).toEqual([0, '']);
    expect(joined.stdout).toMatch(/^online: https:\/\/agent-cabinet-7\.sitea\.example\.com$/m);
    process.stdout.write(
      `  measured: join with a service, until online: ${Math.round(performance.now() - began)} ms\n`,
    );
    const { stdout: modes } = await machine.run(
      'stat',
      '-c',
      '%a %U:%G %n',
      '/etc/device-agent/authtoken',
      '/etc/device-agent/enrolment.json',
      '/etc/device-agent/settings.env',
    );
    expect(modes).toBe(
      '600 root:root /etc/device-agent/authtoken\n600 root:root /etc/device-agent/enrolment.json\n640 root:device-agent /etc/device-agent/settings.env\n',
    );
    expect((await curl('https://agent-cabinet-7.sitea.example.com/healthz')).stdout).toContain('alive');
    const started = await machine.deviceAgent('tunnels', 'start', '8001', '-d', 'camera', '--json');
    expect(JSON.parse(started.stdout)).toMatchObject({ domain: 'camera.sitea.example.com' });
  });

  it('join by a user refuses to make a second device, and leaves the code and the home folder alone', async () => {
    const uses = async () => JSON.parse((await machine.deviceAgent('gateway', 'invites', '--json')).stdout);
    const before = await uses();
    const join = (...args: string[]) =>
      machine.runIn('/home/pi', 'pi', SystemdMachine.NODE, SystemdMachine.CLI, 'join', code, ...args);
    const plain = await join('--name', 'cabinet-7');
    expect([plain.code, plain.stderr]).toEqual([
      1,
      expect.stringMatching(/^device-agent: nothing was sent: .*run sudo \S+ \S+ join - --name cabinet-7 and paste/),
    ]);
    expect(plain.stderr).not.toContain(code);
    const second = await join('--no-service');
    expect([second.code, second.stderr]).toEqual([1, expect.stringMatching(/nothing was sent: .*4040.* AGENT_PORT/)]);
    expect(await uses()).toEqual(before);
    expect((await machine.run('ls', '-A', '/home/pi')).stdout).not.toContain('.env');
    expect((await machine.run('ls', '/home/pi/data/enrolment.json')).code).not.toBe(0);
  });

  it('join without a code keeps the device, and takes the new name that it got on the gateway', async () => {
    await machine.deviceAgent('gateway', 'devices', 'rename', 'cabinet-7', 'cabinet-8');
    const again = await machine.deviceAgent('join');
    expect(again.stdout).toMatch(/^online: https:\/\/agent-cabinet-8\.sitea\.example\.com$/m);
    const listed = JSON.parse((await machine.deviceAgent('gateway', 'devices', '--json')).stdout);
    expect(listed).toMatchObject([{ name: 'cabinet-8', status: 'enrolled', online_since: expect.any(String) }]);
  });

  it('the service fetches another authtoken when the gateway rotates it', async () => {
    const device = async () => JSON.parse((await machine.deviceAgent('gateway', 'devices', '--json')).stdout)[0];
    const { online_since: before } = await device();
    expect((await machine.deviceAgent('gateway', 'devices', 'rotate', 'cabinet-8')).code).toBe(0);
    await until(
      async () => {
        const { online_since, rotation_pending } = await device();
        return !rotation_pending && online_since !== null && online_since !== before;
      },
      'another session with another authtoken',
      { withinMs: 60_000, everyMs: 500 },
    );
    expect((await curl('https://agent-cabinet-8.sitea.example.com/healthz')).stdout).toContain('alive');
  });

  it('a service with AGENT_JOIN_CODE joins at its first start', async () => {
    const removed = await machine.deviceAgent('service', 'uninstall', '--purge', '--yes');
    expect(removed.stdout).toContain('cabinet-8 has left sitea.example.com\n');
    await machine.write('/etc/device-agent/settings.env', `AGENT_JOIN_CODE=${code}\nAGENT_NAME=cabinet-9\n`);
    const installed = await machine.deviceAgent('service', 'install');
    expect(installed.stdout).toMatch(/device-agent is running/);
    const listed = JSON.parse((await machine.deviceAgent('gateway', 'devices', '--json')).stdout);
    expect(listed.map(({ name }: { name: string }) => name)).toEqual(['cabinet-9']);
  });

  it('join moves a device that joined at its first start to another site, with its id and history', async () => {
    const devices = async () => JSON.parse((await machine.deviceAgent('gateway', 'devices', '--json')).stdout);
    const [{ id }] = await devices();
    const invited = await machine.deviceAgent('gateway', 'invite', '--site', '*.siteb.example.com');
    const joined = await machine.deviceAgent('join', /echo (join-\S+) \|/.exec(invited.stdout)?.[1] ?? '');
    expect(joined.stdout).toMatch(/^online: https:\/\/agent-cabinet-9\.siteb\.example\.com$/m);
    expect(await devices()).toMatchObject([{ id, site: 'siteb.example.com' }]);
    const [{ history }] = await devices();
    const steps = history.map(({ what }: { what: string }) => what);
    expect(steps).toEqual(expect.arrayContaining(['enrolled', 'moved']));
    const left = await machine.run('ls', '-A', '/var/lib/device-agent');
    expect(left.stdout).not.toMatch(/joined\.env|enrolment\.json|gateway-ca\.pem/);
  });
});
