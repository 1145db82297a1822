import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import packageJson from '../../../package.json' with { type: 'json' };
import { releaseFiles } from '../../../scripts/packages/release-manifest.js';
import { AGENT_SERVICE } from '../../../src/service/service.ts';
import { unitText, userText } from '../../../src/service/unit.ts';
import type { ReleaseFile } from '../../../src/update/release.ts';
import { unless } from '../../support/requirements.ts';
import { publisherKey, signedRelease } from '../../support/signed-release.ts';
import { SystemdMachine } from '../../support/systemd-machine.ts';
import { sharedFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';
import { buildPackages, commandsInDocs, makeKey, publish, serve } from './apt-repository.ts';
import { debianRoot, MACHINE_PACKAGES, NO_DEBIAN_ROOT } from './debian-root.ts';

const [OLD, NEW] = ['0.0.9', '0.0.10'];
const NODE = '/usr/lib/device-agent/bin/node';
const SETTINGS = '/etc/device-agent/settings.env';

/** Makes the package of another version. $0: a package, $1: the version, $2: a command in its folder, $3: the folder for it */
const REPACK = `
work=$(mktemp -d) && dpkg-deb -R "$0" "$work/root" && cd "$work/root"
sed -i "s/^Version: .*/Version: $1/" DEBIAN/control
grep -rlF '"${packageJson.version}"' usr/lib/device-agent/dist | xargs -r sed -i "s/\\"${packageJson.version}\\"/\\"$1\\"/"
[ ! -e usr/lib/device-agent/package.json ] || sed -i "s/\\"version\\":\\"[^\\"]*\\"/\\"version\\":\\"$1\\"/" usr/lib/device-agent/package.json
eval "$2"
sed -i "s/(= [^)]*)/(= $1)/" DEBIAN/control
dpkg-deb --root-owner-group -Zgzip -z1 -b . "$3/$(dpkg-deb -f "$0" Package)_$1_amd64.deb" && rm -r "$work"`;

const NAMES = ['connect.gateway', 'api.gateway', 'agent-device.sitea', 'camera.sitea'];

describe.each([
  ['trixie', 1],
  ['bookworm', 2],
] as const)('the packages in a Debian %s', { timeout: 900_000, ...unless(NO_DEBIAN_ROOT) }, (suite, number) => {
  const debs = sharedFolder();
  const repository = sharedFolder();
  const keys = sharedFolder();
  const [address, hostAddress] = [`10.78.${number}.2`, `10.78.${number}.1`];
  let machine: SystemdMachine;
  let server: Awaited<ReturnType<typeof serve>>;
  let key = '';

  const run = async (command: string) => {
    const { code, stdout, stderr } = await machine.run('sh', '-c', command);
    expect([code, code === 0 ? '' : stderr], command).toEqual([0, '']);
    return stdout;
  };
  const isActive = async (unit: string) => (await machine.property(unit, 'ActiveState')) === 'active';
  const files = async () =>
    (
      await run(
        "find / -xdev -path /tmp -prune -o -path /proc -prune -o -path /old -prune -o -name '*device-agent*' -print",
      )
    )
      .split('\n')
      .filter((path) => path && !/^\/(var\/lib\/apt|var\/cache\/apt|etc\/apt)\//.test(path));
  const offer = (version: string) => {
    buildPackages('amd64', version, debs);
    const built = readdirSync(debs).filter((name) => name.includes(`_${version}_`));
    publish(
      repository,
      key,
      server.url,
      built.map((name) => join(debs, name)),
    );
  };
  const viaTunnel = () =>
    run(
      'curl -sS --fail --retry 20 --retry-delay 1 --retry-all-errors --cacert /etc/device-agent/gateway-ca.pem https://camera.sitea.example.com/',
    );

  beforeAll(async () => {
    const root = await debianRoot(suite, 'amd64', MACHINE_PACKAGES);
    key = makeKey(keys);
    const booted = await SystemdMachine.boot(root);
    if (booted === null) throw new Error('the machine does not boot');
    machine = booted;
    await machine.connectToHost(`${address}/30`, `${hostAddress}/30`);
    server = await serve(repository, hostAddress);
    await run('hostname device; rm -f /etc/resolv.conf /etc/apt/sources.list; rm -rf /etc/apt/sources.list.d/*');
    await machine.write(
      '/etc/hosts',
      `127.0.0.1 localhost device ${NAMES.map((name) => `${name}.example.com`).join(' ')}\n`,
    );
    await machine.write('/usr/local/bin/sudo', '#!/bin/sh\nexec "$@"\n');
    await run('chmod +x /usr/local/bin/sudo');
    offer(OLD);
  }, 900_000);
  afterAll(async () => {
    server?.close();
    await machine?.end();
  });

  it('are installed by the commands of the docs, upgraded, removed and purged', async () => {
    const began = performance.now();
    for (const command of commandsInDocs(server.url)) await run(command);
    process.stdout.write(`  measured: ${suite}: installed in ${((performance.now() - began) / 1000).toFixed(1)} s\n`);
    expect(await run('device-agent --help')).toContain('Usage: device-agent');
    // Nothing to do yet.
    expect((await machine.run('systemctl', 'is-enabled', 'device-agent')).stdout.trim()).toBe('disabled');
    expect(await isActive('device-agent')).toBe(false);
    expect(await run(`stat -c '%a %U %G' /etc/device-agent ${SETTINGS}`)).toBe(
      '750 root device-agent\n640 root device-agent\n',
    );
    expect((await machine.run('device-agent', 'service', 'status')).stdout).toBe('device-agent: not installed\n');

    await run('apt-get install --yes device-agent-gateway');
    expect(await isActive('device-agent-gateway')).toBe(false);
    await run('device-agent gateway init --domain gateway.example.com --no-acme');
    expect(await machine.property('device-agent-gateway', 'FragmentPath')).toMatch(
      /^(\/usr)?\/lib\/systemd\/system\/device-agent-gateway\.service$/,
    );
    const [code = ''] = /join-[\w-]+/.exec(await run("device-agent gateway invite --site '*.sitea.example.com'")) ?? [];
    expect(await run(`echo ${code} | device-agent join -`)).toContain('online: https://agent-device.sitea.example.com');
    await run(
      `systemd-run --quiet ${NODE} -e "require('http').createServer((req, res) => res.end('picture')).listen(8001)"`,
    );
    await run('device-agent http 8001 --domain camera');
    expect(await viaTunnel()).toBe('picture');
    // systemd holds the ports of the gateway meanwhile.
    expect(await isActive('device-agent-gateway.socket')).toBe(true);
    await run('systemctl restart device-agent-gateway');
    expect(await viaTunnel()).toBe('picture');

    await run(`echo LOG_LEVEL=debug >> ${SETTINGS}`);
    const settings = await run(`cat ${SETTINGS} /etc/device-agent-gateway/settings.env`);
    const tunnels = await run('cat /var/lib/device-agent/tunnels.json');
    const processes = () =>
      Promise.all(['device-agent', 'device-agent-gateway'].map((name) => machine.property(name, 'MainPID')));
    const before = await processes();
    offer(NEW);
    await run('apt-get update && DEBIAN_FRONTEND=noninteractive apt-get upgrade --yes');
    expect(await run('dpkg-query -W device-agent device-agent-gateway | cut -f 2')).toBe(`${NEW}\n${NEW}\n`);
    expect(await viaTunnel()).toBe('picture');
    const after = await processes();
    expect(after.filter((pid) => pid === '0' || before.includes(pid))).toEqual([]);
    expect(await run(`cat ${SETTINGS} /etc/device-agent-gateway/settings.env`)).toBe(settings);
    expect(await run('cat /var/lib/device-agent/tunnels.json')).toBe(tunnels);

    // A service that somebody has stopped stays stopped.
    await run('systemctl stop device-agent && apt-get install --yes --reinstall --download-only device-agent');
    await run('dpkg -i /var/cache/apt/archives/device-agent_*.deb');
    expect(await isActive('device-agent')).toBe(false);

    await run('apt-get remove --yes device-agent device-agent-gateway');
    expect(await isActive('device-agent-gateway')).toBe(false);
    expect((await machine.run('pgrep', '-f', 'dist/cli.js')).stdout).toBe('');
    expect(
      await run('ls /var/lib/device-agent/tunnels.json /var/lib/device-agent-gateway/gateway/gateway.db'),
    ).toBeTruthy();

    // They go on where they were.
    await run('apt-get install --yes device-agent device-agent-gateway');
    expect(await viaTunnel()).toBe('picture');

    await run('apt-get purge --yes device-agent device-agent-gateway');
    expect(await files()).toEqual([]);
    expect((await machine.run('getent', 'passwd', 'device-agent', 'device-agent-gateway')).stdout).toBe('');
    await until(async () => !(await isActive('device-agent')), 'the service is gone');
  });

  it('replace the unit of another installation, whose commands then say what to do', async () => {
    const other = { node: '/usr/bin/node', cli: '/usr/local/lib/node_modules/device-agent/dist/cli.js' };
    const unit = '/etc/systemd/system/device-agent.service';
    await machine.write(unit, unitText(AGENT_SERVICE, other));
    await machine.write('/etc/sysusers.d/device-agent.conf', userText(AGENT_SERVICE));
    await machine.write(SETTINGS, 'NGROK_SERVER_ADDR=127.0.0.1:9\n');
    await machine.write('/etc/device-agent/authtoken', 'an-authtoken\n');
    await run('systemctl daemon-reload && systemctl enable --quiet device-agent');
    for (const command of commandsInDocs(server.url)) await run(command);
    expect(await machine.property('device-agent', 'FragmentPath')).toMatch(/^(\/usr)?\/lib\/systemd/);
    expect(await isActive('device-agent')).toBe(true);
    expect(await run('systemctl is-enabled device-agent')).toBe('enabled\n');
    expect(await run(`cat ${SETTINGS}`)).toBe('NGROK_SERVER_ADDR=127.0.0.1:9\n');
    expect(await run('device-agent service install')).toBe('device-agent is running and starts at boot\n');
    expect(await run('device-agent service status')).toMatch(
      /^ {2}unit: \/usr\/lib\/systemd\/system\/device-agent.service$/m,
    );

    await run('cp -r /usr/lib/device-agent /opt/other');
    const foreign = await machine.run(NODE, '/opt/other/dist/cli.js', 'service', 'install');
    expect([foreign.code, foreign.stderr]).toEqual([
      1,
      'device-agent: the Debian package device-agent has this service: run sudo /usr/bin/device-agent instead of ' +
        '/opt/other/dist/cli.js, or remove the package first: sudo apt remove device-agent\n',
    ]);

    expect(await run('device-agent service uninstall')).toContain('sudo apt remove device-agent\n');
    expect(await isActive('device-agent')).toBe(false);
    // What somebody has edited, they move themselves.
    await machine.write(unit, `${unitText(AGENT_SERVICE, other)}# edited\n`);
    await run(`apt-get purge --yes device-agent; rm -r /opt/other; rm -f ${SETTINGS}`);
    await run('apt-get install --yes device-agent');
    expect(await run(`tail -n 1 ${unit}`)).toBe('# edited\n');
    await run(`apt-get purge --yes device-agent; rm ${unit}; systemctl daemon-reload`);
    expect(await files()).toEqual([]);
  });

  it('are updated by device-agent update, which goes back from a version that does not answer', async () => {
    const { key: publisher, keySet } = publisherKey();
    await machine.write('/etc/device-agent/update-keys.json', keySet);
    const folder = '/srv/releases';
    /** Puts the packages of a version, and its manifest, into the machine. @returns the paths there */
    const release = async (version: string, change = 'true') => {
      const names = ['device-agent', 'device-agent-gateway'].map((name) => `${name}_${version}_amd64.deb`);
      for (const name of names) {
        const old = join(debs, name.replace(version, OLD));
        execFileSync('sh', ['-ec', REPACK, old, version, name.includes('gateway') ? 'true' : change, repository]);
        await run(`mkdir -p ${folder} && curl -sSf -o ${folder}/${name} ${server.url}/${name}`);
      }
      const files = releaseFiles(repository, version) as ReleaseFile[];
      expect(files).toHaveLength(2);
      await machine.write(`${folder}/manifest.json`, signedRelease(version, files, publisher));
      return names.map((name) => `${folder}/${name}`);
    };
    const update = async () => {
      const { code, stdout, stderr } = await machine.run('device-agent', 'update', '--from', folder);
      return `${stdout}${stderr}exit code ${code}`;
    };
    // Its exit code says that there is no gateway.
    const running = async () => JSON.parse((await machine.run('device-agent', 'status', '--json')).stdout).version;

    const [first = ''] = await release('1.0.0');
    await machine.write('/etc/device-agent/authtoken', 'an-authtoken\n');
    await run(`apt-get install --yes ${first} && echo NGROK_SERVER_ADDR=127.0.0.1:9 >> ${SETTINGS}`);
    await run('device-agent service install && systemctl restart device-agent');
    await release('1.1.0');
    expect(await update()).toContain('/packages/device-agent_1.0.0.deb is missing');
    await run(
      `mkdir -p /var/lib/device-agent-update/packages && cp ${first} /var/lib/device-agent-update/packages/device-agent_1.0.0.deb`,
    );
    expect(await update()).toContain('updated from 1.0.0 to 1.1.0\nexit code 0');
    expect([await running(), await isActive('device-agent')]).toEqual(['1.1.0', true]);

    await release('1.2.0', "printf 'setInterval(() => {}, 1000)' > usr/lib/device-agent/dist/cli.js");
    expect(await update()).toMatch(/went back from 1\.2\.0 to 1\.1\.0: .*\nexit code 1$/);
    expect([await running(), await isActive('device-agent')]).toEqual(['1.1.0', true]);

    // With the gateway, whose package needs the same version.
    const [agent = '', newer = ''] = await release('1.3.0');
    await run(`apt-get install --yes ${agent} ${newer}`);
    await run('device-agent gateway init --domain gateway.example.com --no-acme');
    await release('1.4.0');
    expect(await update()).toContain('/packages/device-agent_1.3.0.deb is missing');
    await run(
      `for name in device-agent device-agent-gateway; do cp ${folder}/"$name"_1.3.0_amd64.deb /var/lib/device-agent-update/packages/"$name"_1.3.0.deb; done`,
    );
    const versions = () => run('dpkg-query -W device-agent device-agent-gateway | cut -f 2');
    expect(await update()).toContain('updated from 1.3.0 to 1.4.0\nexit code 0');
    expect([await versions(), await isActive('device-agent-gateway')]).toEqual(['1.4.0\n1.4.0\n', true]);
    await release('1.5.0', "printf 'setInterval(() => {}, 1000)' > usr/lib/device-agent/dist/cli.js");
    expect(await update()).toMatch(/went back from 1\.5\.0 to 1\.4\.0: .*\nexit code 1$/);
    expect([await versions(), await isActive('device-agent-gateway'), await isActive('device-agent')]).toEqual([
      ...['1.4.0\n1.4.0\n', true, true],
    ]);
  });
});
