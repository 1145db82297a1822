import { execFileSync } from 'node:child_process';
import { cpSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import packageJson from '../../../package.json' with { type: 'json' };
import { ARCHITECTURES, type Architecture, nodeOf } from '../../../scripts/packages/debian-files.ts';
import { PACKAGED_PROGRAM } from '../../../src/service/service.ts';
import { freePorts } from '../../support/free-ports.ts';
import { agentSettings, getPublic, startTestGateway } from '../../support/gateway.ts';
import { startHttpService } from '../../support/http-service.ts';
import { TestProxy } from '../../support/proxies.ts';
import { firstOf, unless } from '../../support/requirements.ts';
import { sharedFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';
import { buildPackages, commandsInDocs, makeKey, publish, serve } from './apt-repository.ts';
import { DebianChroot, NO_EMULATION } from './debian-chroot.ts';
import { NO_DEBIAN_ROOT } from './debian-root.ts';

/** A folder of `npm run release`, whose files are measured; without it, they are built. */
const { RELEASE } = process.env;
const MB = 1e6;
const MIB = 2 ** 20;
const { version } = packageJson;
/** Emulated, one start takes seconds. */
const SLOW = { withinMs: 300_000, everyMs: 500 };
/** After that, the agent's memory has settled. */
const SETTLED_MS = 20_000;

/** The commands of a page that contain a text, one a line, without remarks. */
function commandsWith(page: string, text: string): string[] {
  const blocks = [...readFileSync(page, 'utf8').matchAll(/```sh\n(.*?)```/gs)].map(([, block = '']) => block);
  const found = blocks.find((block) => block.includes(text)) ?? '';
  return found
    .trim()
    .split('\n')
    .map((line) => line.replace(/ +# .*/, ''));
}

interface Channel {
  readonly title: string;
  readonly architectures: readonly Architecture[];
  /** What a person types, with the address of the files. */
  readonly commands: (url: string, architecture: Architecture) => string[];
  /** Paths of Node.js and cli.js. */
  readonly program: (architecture: Architecture) => readonly [string, string];
  readonly connectors: readonly ('native' | 'sdk')[];
  /** Most that may be fetched for it, in MB, with Node.js inside; null: no limit. */
  readonly budget: number | null;
}

/** Debian's Node.js, then the commands of the docs but the last one, which starts the service. */
const npmCommands = (text: string) => () =>
  [
    ...commandsWith('docs/raspberry-pi.md', 'nodejs npm').slice(0, 1),
    ...commandsWith('docs/raspberry-pi.md', text),
  ].filter((line) => !line.includes('service install'));

const CHANNELS: readonly Channel[] = [
  {
    title: 'Debian package',
    architectures: ['amd64', 'arm64', 'armhf'],
    commands: commandsInDocs,
    program: (architecture) => [nodeOf(architecture), PACKAGED_PROGRAM],
    connectors: ['native', 'sdk'],
    budget: 40,
  },
  {
    title: 'folder of its own',
    architectures: ['amd64', 'arm64'],
    commands: (url, architecture) => {
      const file = `device-agent-${version}-linux-${ARCHITECTURES[architecture]}.tar.xz`;
      const lines = commandsWith('docs/updates.md', '/opt/device-agent/versions').slice(0, -1);
      return [`curl -fsSO ${url}/${file}`, ...lines.map((line) => line.replaceAll('1.2.3', version))].map((line) =>
        line.replace(/-linux-\w+/, `-linux-${ARCHITECTURES[architecture]}`),
      );
    },
    program: () => ['/opt/device-agent/current/bin/node', '/opt/device-agent/current/dist/cli.js'],
    connectors: ['native', 'sdk'],
    budget: null,
  },
  {
    title: 'npm, global, with Debian’s Node.js',
    architectures: ['amd64', 'arm64'],
    commands: () => [...new Set(npmCommands('npm install --global')())],
    program: () => ['/usr/bin/node', '/usr/local/lib/node_modules/device-agent/dist/cli.js'],
    connectors: ['native', 'sdk'],
    budget: null,
  },
  {
    title: 'npm without optional packages',
    architectures: ['amd64', 'arm64'],
    commands: npmCommands('--omit=optional'),
    program: () => ['/usr/bin/node', '/usr/local/lib/device-agent/node_modules/device-agent/dist/cli.js'],
    connectors: ['native'],
    budget: null,
  },
];

/** Builds the files of a release for an architecture; minutes. */
function build(architecture: Architecture, folder: string): void {
  buildPackages(architecture, version, folder, []);
  const archive = ['scripts/packages.js', 'archive', architecture, '--folder', folder];
  execFileSync(process.execPath, archive, { stdio: ['ignore', 'ignore', 'inherit'] });
  execFileSync('npm', ['pack', '--ignore-scripts', '--silent', '--pack-destination', folder], { stdio: 'ignore' });
}

const rows: (string | number)[][] = [];

describe.each<Architecture>(['amd64', 'arm64', 'armhf'])('on %s', (architecture) => {
  const isEmulated = process.arch !== ARCHITECTURES[architecture];
  const files = sharedFolder();
  let server: Awaited<ReturnType<typeof serve>>;

  beforeAll(async () => {
    if (missing !== null) return;
    if (RELEASE === undefined) build(architecture, files);
    else cpSync(RELEASE, files, { recursive: true });
    server = await serve(files, '127.0.0.1');
    const debs = readdirSync(files).filter((name) => name.endsWith(`_${architecture}.deb`));
    publish(
      files,
      makeKey(sharedFolder()),
      server.url,
      debs.map((name) => join(files, name)),
    );
  }, 1_800_000);
  afterAll(() => server?.close());

  const missing = firstOf(NO_DEBIAN_ROOT, isEmulated ? NO_EMULATION : null);
  const channels = CHANNELS.filter(({ architectures }) => architectures.includes(architecture));
  it.each(channels)(
    '$title: commands, download, disk, time and memory',
    { timeout: 3_600_000, ...unless(missing) },
    async ({ title, commands, program, connectors, budget }) => {
      // Debian's npm does not support SOCKS, nor apt's plain requests CONNECT.
      const [proxy, npmProxy] = [await TestProxy.socks(), await TestProxy.http()];
      const address = `socks5h://${proxy.address}`;
      const { first: port } = await freePorts(1);
      const system = await DebianChroot.open(architecture, ['xz-utils'], {
        DEBIAN_FRONTEND: 'noninteractive',
        AGENT_PORT: String(port),
        ALL_PROXY: address,
        // This machine may reach the registry by a CA of its own.
        NODE_EXTRA_CA_CERTS: '/machine-ca.pem',
        npm_config_https_proxy: `http://${npmProxy.address}`,
      });
      const gateway = await startTestGateway();
      onTestFinished(() => gateway.close());
      system.copy(gateway.caFile, '/gateway-ca.pem');
      system.copy('/etc/ssl/certs/ca-certificates.crt', '/machine-ca.pem');
      await system.run('apt-get update');
      await system.run(`echo 'Acquire::http::Proxy "${address}";' > /etc/apt/apt.conf.d/proxy`);

      const used = async () => Number((await system.run('df --output=used --block-size=1 / | tail -n 1')).trim());
      const typed = commands(server.url, architecture);
      // Copied to the device, as the docs say.
      const copied = typed.some((line) => line.includes('./device-agent-'))
        ? join(files, `device-agent-${version}.tgz`)
        : null;
      if (copied !== null) system.copy(copied, basename(copied));
      const usedBefore = await used();
      const began = performance.now();
      for (const command of typed) await system.run(command);
      const seconds = (performance.now() - began) / 1000;
      const fetched = proxy.received + npmProxy.received + (copied === null ? 0 : statSync(copied).size);
      // What nobody needs any more.
      await system.run('rm -rf /root/.npm /var/cache/apt/archives/*.deb ./device-agent-*.tar.xz');
      const disk = (await used()) - usedBefore;

      const service = await startHttpService((_request, res) => res.end('picture'));
      onTestFinished(() => service.close());
      const memory: string[] = [];
      for (const connector of connectors) {
        const stop = system.startAgent(program(architecture), 'daemon', {
          ...agentSettings(gateway),
          ...{ NGROK_CA_CERT: '/gateway-ca.pem', AGENT_PORT: String(port), AGENT_CONNECTOR: connector },
        });
        const call = `curl -fsS --noproxy '*' http://127.0.0.1:${port}`;
        await until(() => succeeds(system.run(`${call}/readyz`)), 'the agent is online', SLOW);
        const body = JSON.stringify({ forwards_to: service.url, domain: `${connector}.localhost` });
        await system.run(`${call}/tunnels -H 'Content-Type: application/json' -d '${body}'`);
        for (let request = 0; request < (isEmulated ? 1 : 100); request++)
          expect((await getPublic(gateway, `https://${connector}.localhost`)).body).toBe('picture');
        if (!isEmulated) {
          await delay(SETTLED_MS);
          memory.push(`${Math.round((await system.agentMemory()) / MIB)} (${connector})`);
        }
        await stop();
      }
      rows.push([
        title,
        isEmulated ? `${architecture}, emulated` : architecture,
        typed.length,
        `${(fetched / MB).toFixed(1)} MB`,
        `${(disk / MB).toFixed(0)} MB`,
        `${seconds.toFixed(0)} s`,
        memory.length > 0 ? `${memory.join(', ')} MiB` : '–',
      ]);
      process.stdout.write(`  measured: ${rows.at(-1)?.join(' | ')}\n`);
      if (budget !== null && architecture !== 'armhf') expect(fetched).toBeLessThan(budget * MB);
    },
  );
});

/** Whether a promise is fulfilled. */
const succeeds = (promise: Promise<unknown>) =>
  promise.then(
    () => true,
    () => false,
  );

afterAll(() => {
  const head = ['Channel', 'Machine', 'Commands', 'Fetched', 'On disk', 'Time', 'Memory'];
  const lines = [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |\n`);
  process.stdout.write(`\n${lines.join('')}`);
});
