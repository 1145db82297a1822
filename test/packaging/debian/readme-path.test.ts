import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import publication from '../../../packaging/publication.json' with { type: 'json' };
import { unless } from '../../support/requirements.ts';
import { SystemdMachine } from '../../support/systemd-machine.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { buildPackages, makeKey, publish, serve } from './apt-repository.ts';
import { debianRoot, MACHINE_PACKAGES, NO_DEBIAN_ROOT } from './debian-root.ts';

const [SERVER, DEVICE] = ['10.78.5.1', '10.78.5.2'];
const NODE = '/usr/lib/device-agent/bin/node';

/** The commands of README below a heading, in order. */
function commandsInReadme(heading: string): string[] {
  const [, section = ''] = readFileSync('README.md', 'utf8').split(`### ${heading}\n`);
  const [, block = ''] = /```sh\n([\s\S]*?)```/.exec(section) ?? [];
  return block.trim().split('\n');
}

async function bootWith(root?: string): Promise<SystemdMachine> {
  const machine = await SystemdMachine.boot(root);
  if (machine === null) throw new Error('the machine does not boot');
  onTestFinished(() => machine.end());
  await machine.write('/usr/local/bin/sudo', '#!/bin/sh\nexec "$@"\n');
  await machine.run('chmod', '+x', '/usr/local/bin/sudo');
  await machine.run('rm', '-f', '/etc/resolv.conf');
  return machine;
}

async function typed(machine: SystemdMachine, command: string): Promise<string> {
  const { code, stdout, stderr } = await machine.run('sh', '-c', command);
  expect([code, code === 0 ? '' : stderr], command).toEqual([0, '']);
  return stdout;
}

it('the commands of README lead from a fresh Debian 13 to a public URL that answers', {
  timeout: 900_000,
  ...unless(NO_DEBIAN_ROOT),
}, async () => {
  const [debs, repository] = [temporaryFolder(), temporaryFolder()];
  const device = await bootWith(await debianRoot('trixie', 'amd64', MACHINE_PACKAGES));
  await device.connectToHost('10.78.4.2/30', '10.78.4.1/30');
  const apt = await serve(repository, '10.78.4.1');
  onTestFinished(apt.close);
  buildPackages('amd64', '0.0.9', debs);
  const built = readdirSync(debs).map((name) => join(debs, name));
  publish(repository, makeKey(temporaryFolder()), apt.url, built);

  const server = await bootWith();
  await server.connect(`${SERVER}/30`, device, `${DEVICE}/30`);
  const names = ['connect.gateway', 'api.gateway'].map((name) => `${name}.example.com`).join(' ');
  await server.write('/etc/hosts', `127.0.0.1 localhost ${names}\n`);
  await server.write(
    '/usr/local/bin/device-agent',
    `#!/bin/sh\nexec ${SystemdMachine.NODE} ${SystemdMachine.CLI} "$@"\n`,
  );
  await server.run('chmod', '+x', '/usr/local/bin/device-agent');
  const [init = '', invite = ''] = commandsInReadme('Your own gateway');
  await typed(server, init);
  const [code = ''] = /join-[\w-]+/.exec(await typed(server, invite)) ?? [];

  await device.run('hostname', 'cabinet-7');
  await device.write(
    '/etc/hosts',
    `127.0.0.1 localhost cabinet-7\n${SERVER} ${names} agent-cabinet-7.sitea.example.com\n`,
  );
  // In place of Debian's own lists, which this machine cannot reach.
  await typed(device, 'rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*');

  const commands = commandsInReadme('On a Raspberry Pi');
  expect(commands.length).toBeLessThanOrEqual(4);
  const seconds: number[] = [];
  let said = '';
  for (const command of commands) {
    const here = command.replace(publication.apt.url, apt.url).replace(/join-\S+/, code);
    // Before the last one: what somebody wants to publish.
    if (command === commands.at(-1)) {
      const upstream = `require('http').createServer((req, res) => res.end('the program on the Pi')).listen(3000)`;
      await typed(device, `systemd-run --quiet ${NODE} -e "${upstream}"`);
    }
    const began = performance.now();
    said = await typed(device, here);
    seconds.push((performance.now() - began) / 1000);
  }
  const [, url = '', host = ''] = /(https:\/\/(\S+)) ->/.exec(said) ?? [];
  const ca = '/var/lib/device-agent-gateway/gateway/ca.pem';
  const client = `curl -sS --fail --retry 20 --retry-delay 1 --retry-all-errors --cacert ${ca}`;
  expect(await typed(server, `${client} --resolve ${host}:443:127.0.0.1 ${url}/`)).toBe('the program on the Pi');
  const each = seconds.map((value) => value.toFixed(1)).join(' + ');
  const all = seconds.reduce((sum, value) => sum + value, 0).toFixed(1);
  process.stdout.write(`  measured: README's commands on a fresh Debian: ${each} = ${all} s\n`);
});
