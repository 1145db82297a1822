import { readFileSync } from 'node:fs';
import { afterAll, expect, it } from 'vitest';
import { unless } from '../support/requirements.ts';
import { SystemdMachine } from '../support/systemd-machine.ts';

/** A server and two devices; each device has a cable to the server alone. */
const booted = [await SystemdMachine.boot(), await SystemdMachine.boot(), await SystemdMachine.boot()];
const machines = booted.filter((machine) => machine !== null);
const MISSING = machines.length < 3 ? 'root, systemd and namespaces are required' : null;
afterAll(() => Promise.all(machines.map((machine) => machine.end())));

/** The commands of README for a gateway of one's own, in order. */
function commandsInReadme(): string[] {
  const [, section = ''] = readFileSync('README.md', 'utf8').split('### Your own gateway');
  const [before = ''] = section.split(/^#+ /m);
  return before.split('\n').filter((line) => /^(?:echo \S+ \| )?sudo device-agent /.test(line));
}

/** Instead of DNS: what the records that `gateway init` prints would say. */
/** The first device that asks for a name gets it. */
const CAMERAS = ['camera.sitea', 'camera-cabinet-2.sitea'];

const namesAt = (address: string) =>
  ['connect.gateway', 'api.gateway', ...[1, 2].map((number) => `agent-cabinet-${number}.sitea`), ...CAMERAS]
    .map((name) => `${address} ${name}.example.com\n`)
    .join('');

/** Gives a machine a name, what npm installs and sudo, and the names of the gateway. */
async function prepare(machine: SystemdMachine, name: string, gateway: string): Promise<void> {
  const { NODE, CLI } = SystemdMachine;
  await machine.run('hostname', name);
  await machine.write('/etc/hosts', `127.0.0.1 localhost\n${namesAt(gateway)}`);
  await machine.write('/etc/nsswitch.conf', 'hosts: files\n');
  // A resolver that cannot be reached takes its time.
  await machine.run('rm', '-f', '/etc/resolv.conf');
  await machine.write('/usr/local/bin/device-agent', `#!/bin/sh\nexec ${NODE} ${CLI} "$@"\n`);
  await machine.write('/usr/local/bin/sudo', '#!/bin/sh\nexec "$@"\n');
  await machine.run('chmod', '+x', '/usr/local/bin/device-agent', '/usr/local/bin/sudo');
}

it('the three commands of README make a gateway and two devices that a client reaches', {
  timeout: 300_000,
  ...unless(MISSING),
}, async () => {
  const [server, ...devices] = machines as [SystemdMachine, SystemdMachine, SystemdMachine];
  await prepare(server, 'server', '127.0.0.1');
  for (const [at, device] of devices.entries()) {
    await prepare(device, `cabinet-${at + 1}`, `10.9.${at}.1`);
    await server.connect(`10.9.${at}.1/30`, device, `10.9.${at}.2/30`);
  }
  const [init = '', invite = '', join = '', ...more] = commandsInReadme();
  expect(more).toEqual([]);
  const run = async (machine: SystemdMachine, command: string) => {
    const { code, stdout, stderr } = await machine.run('sh', '-c', command);
    expect([code, stderr], command).toEqual([0, '']);
    return stdout;
  };

  const began = performance.now();
  expect(await run(server, init)).toContain('connect.gateway.example.com');
  const [code = ''] = /join-[\w-]+/.exec(await run(server, invite)) ?? [];
  for (const [at, device] of devices.entries()) {
    expect(await run(device, join.replace(/join-\S+/, code))).toContain(
      `online: https://agent-cabinet-${at + 1}.sitea.example.com\n`,
    );
  }
  const seconds = ((performance.now() - began) / 1000).toFixed(1);
  process.stdout.write(`  measured: three commands, two devices online: ${seconds} s\n`);

  // Each device asks for the other one's tunnel, as a client that only knows the URL.
  const serve = `require('http').createServer((req, res) => res.end(os.hostname())).listen(8001)`;
  for (const device of devices) {
    await device.run('systemd-run', '--quiet', SystemdMachine.NODE, '-e', `const os = require('os'); ${serve}`);
    expect((await device.deviceAgent('tunnels', 'start', '8001', '-d', 'camera')).code).toBe(0);
  }
  const curl = 'curl -sS --retry 5 --retry-all-errors --cacert /etc/device-agent/gateway-ca.pem';
  const [one, two] = devices as [SystemdMachine, SystemdMachine];
  expect(await run(two, `${curl} https://${CAMERAS[0]}.example.com/`)).toBe('cabinet-1');
  expect(await run(one, `${curl} https://${CAMERAS[1]}.example.com/`)).toBe('cabinet-2');
});
