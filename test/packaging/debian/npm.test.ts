import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import packageJson from '../../../package.json' with { type: 'json' };
import { NpmRegistry } from '../../support/npm-registry.ts';
import { unless } from '../../support/requirements.ts';
import { publisherKey, signedRelease } from '../../support/signed-release.ts';
import { SystemdMachine } from '../../support/systemd-machine.ts';
import { sharedFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';
import { debianRoot, MACHINE_PACKAGES, NO_DEBIAN_ROOT } from './debian-root.ts';

const MODULES = '/usr/local/lib/node_modules';
const RELEASES = '/srv/releases';
const TUNNEL = 'https://demo.localhost:8443';

/** Makes another version of the program. $0: what npm publishes, $1: the version, $2: a command in its folder, $3: the folder */
const CHANGE = `cp -r "$0/package" "$3" && cd "$3"
grep -rlF '"${packageJson.version}"' dist package.json | xargs sed -i 's/"${packageJson.version}"/"'"$1"'"/'
eval "$2"`;

/** A version that starts and never answers. */
const SILENT =
  "echo \"process.argv[2] === '--version' ? console.log('1.3.0') : setInterval(() => {}, 1000)\" > dist/cli.js";

describe('npm install --global in a Debian 13', { timeout: 900_000, ...unless(NO_DEBIAN_ROOT) }, () => {
  const folder = sharedFolder();
  const { key, keySet } = publisherKey();
  let machine: SystemdMachine;
  let registry: NpmRegistry;

  const run = async (command: string) => {
    const { code, stdout, stderr } = await machine.run('sh', '-c', command);
    expect([code, code === 0 ? '' : stderr], command).toEqual([0, '']);
    return stdout;
  };
  /** Puts a version into the registry. @returns its tarball */
  const publish = (version: string, change = 'true') => {
    const program = join(folder, version);
    execFileSync('sh', ['-ec', CHANGE, folder, version, change, program]);
    return registry.add(program);
  };
  /** Puts a version into the registry, and its release into the machine. */
  const release = async (version: string, change?: string) => {
    const tarball = publish(version, change);
    const name = `device-agent-${version}.tgz`;
    await run(`mkdir -p ${RELEASES} && curl -sSf -o ${RELEASES}/${name} ${registry.url}/device-agent/-/${version}.tgz`);
    const sha256 = createHash('sha256').update(tarball).digest('hex');
    const file = { kind: 'npm', architecture: 'any', name, size: tarball.length, sha256 } as const;
    await machine.write(`${RELEASES}/manifest.json`, signedRelease(version, file, key));
  };
  /** Starts an update, as `setsid` does, so that all its processes can be killed. @returns what it says in the end */
  const begin = async () => {
    await run(
      'rm -f /tmp/update.*; setsid sh -c \'echo $$ > /tmp/update.pid; device-agent update > /tmp/update.log 2>&1; echo "exit code $?" >> /tmp/update.log\' > /dev/null 2>&1 &',
    );
    return async () => {
      const log = () => run('cat /tmp/update.log');
      await until(async () => (await log()).includes('exit code'), 'the end of the update', {
        withinMs: 400_000,
        everyMs: 500,
      });
      return log();
    };
  };
  const isTrue = async (condition: string) => (await machine.run('sh', '-c', condition)).code === 0;
  const whenever = (condition: string) => until(() => isTrue(condition), condition, { withinMs: 200_000, everyMs: 50 });
  /** What runs, which tunnels it has, and the versions on the disk: the installed one, as npm sees it, and the one before. */
  const state = async () => ({
    running: JSON.parse((await machine.run('device-agent', 'status', '--json')).stdout).version,
    processes: (await machine.run('pgrep', '-fc', 'dist/cli.js run')).stdout.trim(),
    tunnels: JSON.parse(await run('device-agent tunnels --json')).map(({ url }: { url: string }) => url),
    listed: /device-agent@(\S+)/.exec(await run('npm ls --global'))?.[1],
    kept: (await run(`ls -A ${MODULES}/.device-agent-versions`)).trim(),
  });
  const stateOf = (version: string, kept: string) => ({
    ...{ running: version, processes: '1', tunnels: [TUNNEL], listed: version, kept },
  });

  beforeAll(async () => {
    execFileSync('npm', ['pack', '--ignore-scripts', '--pack-destination', folder], { stdio: 'ignore' });
    execFileSync('sh', ['-ec', 'tar -xzf "$0"/*.tgz -C "$0"', folder]);
    const booted = await SystemdMachine.boot(
      await debianRoot('trixie', 'amd64', [...MACHINE_PACKAGES, 'nodejs', 'npm']),
    );
    if (booted === null) throw new Error('the machine does not boot');
    machine = booted;
    await machine.connectToHost('10.78.3.2/30', '10.78.3.1/30');
    registry = await NpmRegistry.start('10.78.3.1');
    await run(`npm config set registry ${registry.url}`);
    await machine.write('/usr/local/bin/sudo', '#!/bin/sh\nexec "$@"\n');
    await run('chmod +x /usr/local/bin/sudo');
  }, 900_000);
  afterAll(async () => {
    await registry?.close();
    await machine?.end();
  });

  it('is updated, survives kills at any time, and goes back without the registry and npm’s cache', async () => {
    publish('1.0.0');
    await run('sudo npm install --global device-agent');
    await machine.write('/etc/device-agent/update-keys.json', keySet);
    await run('device-agent service install');
    await run(
      `printf 'AGENT_GATEWAY=embedded\\nAGENT_UPDATE=stable\\nAGENT_UPDATE_FROM=${RELEASES}\\n' > /etc/device-agent/settings.env`,
    );
    await run('systemctl start device-agent && device-agent tunnels start 8001 -d demo.localhost');

    // As the timer does it at night, with the environment and the mask of a unit.
    await release('1.1.0');
    await run('systemctl start device-agent-update-check');
    expect(await state()).toEqual(stateOf('1.1.0', '1.0.0'));

    // While npm fetches and unpacks; nothing has changed.
    await release('1.2.0');
    await begin();
    await whenever(`test -d ${MODULES}/.device-agent-versions/.incoming-*/lib/node_modules`);
    const group = (await run('cat /tmp/update.pid')).trim();
    expect((await machine.run('kill', '-9', '--', `-${group}`)).code).toBe(0);
    expect(await state()).toMatchObject({ running: '1.1.0', processes: '1', listed: '1.1.0' });
    expect(await isTrue('test -e /var/lib/device-agent-update/trial.json')).toBe(false);

    // While the version is tried; the watcher goes on. npm is a later one than Debian's.
    registry.add(join(dirname(process.execPath), '../lib/node_modules/npm'));
    await run('npm install --global npm && rm /usr/bin/npm');
    const updating = await begin();
    await whenever('grep -q \'"state": "trying"\' /var/lib/device-agent-update/trial.json');
    await run('systemctl kill -s KILL device-agent-update');
    expect(await updating()).toContain('updated from 1.1.0 to 1.2.0\nexit code 0');
    expect(await state()).toEqual(stateOf('1.2.0', '1.1.0'));
    expect(await run('ls -d /var/lib/device-agent-update/watcher-*')).toBe(
      '/var/lib/device-agent-update/watcher-1.1.0\n',
    );

    await release('1.3.0', SILENT);
    const returning = await begin();
    await whenever(`grep -q '"version": "1.3.0"' ${MODULES}/device-agent/package.json`);
    await registry.close();
    await run('rm -rf /root/.npm');
    expect(await returning()).toContain('went back from 1.3.0 to 1.2.0: it did not answer within 120 s\nexit code 1');
    expect(await state()).toEqual(stateOf('1.2.0', '1.3.0'));
  });
});
