import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type Architecture, nodeOf } from '../../../scripts/packages/debian-files.ts';
import { AGENT_SERVICE, PACKAGED_PROGRAM } from '../../../src/service/service.ts';
import { freePorts } from '../../support/free-ports.ts';
import { agentSettings, getPublic, startTestGateway } from '../../support/gateway.ts';
import { startHttpService } from '../../support/http-service.ts';
import { unless } from '../../support/requirements.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';
import { buildPackages, commandsInDocs, makeKey, publish, serve } from './apt-repository.ts';
import { DebianChroot, NO_EMULATION } from './debian-chroot.ts';

const [OLD, NEW] = ['0.0.9', '0.0.10'];
/** Emulated, one start takes seconds. */
const SLOW = { withinMs: 300_000, everyMs: 500 };

describe.each<[Architecture, string[]]>([
  ['arm64', []],
  ['armhf', ['nodejs']],
])('the package for %s, emulated', { timeout: 1_800_000, ...unless(NO_EMULATION) }, (architecture, include) => {
  it('is installed by the commands of the docs, carries tunnels, and is upgraded, removed and purged', async () => {
    const [debs, repository, keys] = [temporaryFolder(), temporaryFolder(), temporaryFolder()];
    const key = makeKey(keys);
    const server = await serve(repository, '127.0.0.1');
    onTestFinished(server.close);
    const offer = (version: string) => {
      buildPackages(architecture, version, debs);
      const built = readdirSync(debs).filter((name) => name.includes(`_${version}_`));
      publish(
        repository,
        key,
        server.url,
        built.map((name) => join(debs, name)),
      );
    };
    offer(OLD);
    const gateway = await startTestGateway();
    onTestFinished(() => gateway.close());
    const service = await startHttpService((_request, res) => res.end('picture'));
    onTestFinished(() => service.close());
    const { first: port } = await freePorts(1);
    const settings = { ...agentSettings(gateway), NGROK_CA_CERT: '/gateway-ca.pem', AGENT_PORT: String(port) };
    const system = await DebianChroot.open(architecture, include, {
      DEBIAN_FRONTEND: 'noninteractive',
      AGENT_PORT: settings.AGENT_PORT,
    });
    system.copy(gateway.caFile, '/gateway-ca.pem');
    await system.run('rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*');

    const began = performance.now();
    const note = (what: string) =>
      process.stdout.write(
        `  measured: ${architecture}, emulated: ${what} after ${((performance.now() - began) / 1000).toFixed(1)} s\n`,
      );
    for (const command of commandsInDocs(server.url)) await system.run(command);
    note('installed');

    const start = (connector: string) =>
      system.startAgent([nodeOf(architecture), PACKAGED_PROGRAM], AGENT_SERVICE.name, {
        ...settings,
        AGENT_CONNECTOR: connector,
      });
    const isServed = async (url: string) => {
      const { status, body } = await getPublic(gateway, url);
      return status === 200 && body === 'picture';
    };
    const [url, stored] = [`https://camera-${architecture}.localhost`, '/var/lib/device-agent/tunnels.json'];
    let stop = start('native');
    await until(
      () =>
        system.run('device-agent status').then(
          () => true,
          () => false,
        ),
      'the agent is online',
      SLOW,
    );
    await system.run(`device-agent http ${new URL(service.url).port} --domain ${new URL(url).hostname}`);
    expect(await isServed(url)).toBe(true);
    note(`${url} through the native connector`);
    await stop();

    stop = start('sdk');
    await until(() => isServed(url), 'the tunnel is back, through the SDK', SLOW);
    note('the same through the SDK');
    await stop();

    const before = await system.run(`cat ${stored} /etc/device-agent/settings.env`);
    offer(NEW);
    await system.run('apt-get update && apt-get upgrade --yes');
    expect(await system.run('dpkg-query -W device-agent | cut -f 2')).toBe(`${NEW}\n`);
    expect(await system.run('device-agent --version')).toMatch(/^\d/);
    expect(await system.run(`cat ${stored} /etc/device-agent/settings.env`)).toBe(before);
    stop = start('native');
    await until(() => isServed(url), 'the tunnel is back after the upgrade', SLOW);
    note('upgraded, and online again');
    await stop();

    await system.run('apt-get remove --yes device-agent');
    expect(await system.run(`ls ${stored}; ls /usr/bin/device-agent 2>&1 || true`)).toBe(
      `${stored}\nls: cannot access '/usr/bin/device-agent': No such file or directory\n`,
    );
    await system.run('apt-get purge --yes device-agent');
    const left = await system.run(
      "find / -xdev -path /proc -prune -o -name '*device-agent*' -print; getent passwd device-agent || true",
    );
    expect(
      left.split('\n').filter((path) => path && !/^\/(var\/lib\/apt|var\/cache\/apt|etc\/apt)\//.test(path)),
    ).toEqual([]);
    note('removed and purged');
  });
});
