import { once } from 'node:events';
import { chownSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { parse } from 'yaml';
import {
  type ImageConfig,
  ImageStore,
  machineOf,
  NO_IMAGE_BUILDER,
  spawnContainer,
} from '../support/container-image.ts';
import { DockerDaemon } from '../support/docker-daemon.ts';
import { unless } from '../support/requirements.ts';
import { sharedFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';

const BUILD_MS = 300_000;
const FREE = ['AGENT_PORT=0', 'GATEWAY_HTTP_PORT=0', 'GATEWAY_HTTPS_PORT=0'];

/** What a release tells the build, in its `image.args`. */
const RELEASE = ['VERSION=1.2.3', 'SOURCE_COMMIT=0123456789abcdef', 'SOURCE_URL=https://example.com/source'].map(
  (line) => `--build-arg=${line}`,
);

/** unshare waits for its child, which is process 1 of the namespace. */
const childOf = (pid = 0) => Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8'));

it('the Dockerfile hides none of the arguments that BuildKit sets: before 0.18, a declaration without a value does', () => {
  const [global = ''] = readFileSync('Dockerfile', 'utf8').split(/^FROM /m);
  expect(global).toContain('TARGETARCH');
  expect(global).not.toMatch(/^ARG (?:TARGET|BUILD)\w+$/m);
});

it('compose.yaml requires .env, in a way that Compose before 2.24 understands, and keeps the data', () => {
  const { services } = parse(readFileSync('compose.yaml', 'utf8'));
  expect(services['device-agent']).toMatchObject({ env_file: '.env', volumes: ['data:/data'], read_only: true });
});

describe('the image', unless(NO_IMAGE_BUILDER), () => {
  const store = new ImageStore();
  const data = sharedFolder();
  let config: ImageConfig;
  let root: string;

  beforeAll(async () => {
    await store.makeBases();
    await store.build('device-agent', process.arch === 'x64' ? 'amd64' : process.arch, ...RELEASE);
    config = await store.config('device-agent');
    root = await store.mount('device-agent');
    const [user = ''] = config.User.split(':');
    chownSync(data, Number(user), Number(user));
  }, BUILD_MS);
  afterAll(async () => {
    await store.remove();
  }, BUILD_MS);

  /** Starts a container and collects its output. */
  function start(env: string[], command = config.Cmd) {
    const child = spawnContainer(root, data, config, env, command);
    onTestFinished(() => void child.kill('SIGKILL'));
    const ended = once(child, 'close').then(([code]) => code as number | null);
    const said: string[] = [];
    const heard = (line: string) => void said.push(line);
    createInterface({ input: child.stdout }).on('line', heard);
    createInterface({ input: child.stderr }).on('line', heard);
    const line = async (text: string) => {
      for (;;) {
        const found = said.find((candidate) => candidate.includes(text));
        if (found) return found;
        await Promise.race([
          once(child.stdout, 'data'),
          ended.then(() => Promise.reject(new Error(`container ended before it logged: ${text}: ${said.join('\n')}`))),
        ]);
      }
    };
    return { child, ended, said, line };
  }

  it('runs as an unprivileged user, keeps its data in one volume, and holds no source, tool or dev dependency', () => {
    expect(config.User).toMatch(/^[1-9]\d+:[1-9]\d+$/);
    expect(config.Volumes).toEqual({ '/data': {} });
    expect(config.Healthcheck.Test).toEqual(['CMD', 'node', 'dist/cli.js', 'health']);
    expect(readdirSync(join(root, 'app')).sort()).toEqual([
      '.npmrc',
      'LICENSE',
      'defaults',
      'dist',
      'node_modules',
      'package.json',
    ]);
    const packages = readdirSync(join(root, 'app/node_modules')).filter((name) => !name.startsWith('.'));
    expect(packages.sort()).toEqual(['@libsql', '@neon-rs', '@ngrok', 'detect-libc', 'libsql']);
    const others = readdirSync(join(root, 'app/dist')).filter((name) => !name.endsWith('.js'));
    expect(others.sort()).toEqual(['THIRD-PARTY-LICENSES.txt', 'sbom.cdx.json', 'web']);
  });

  it('has labels that say what it was built from, which the program says as well', async () => {
    expect(config.Labels).toMatchObject({
      'org.opencontainers.image.title': 'device-agent',
      'org.opencontainers.image.licenses': 'Apache-2.0',
      'org.opencontainers.image.version': '1.2.3',
      'org.opencontainers.image.revision': '0123456789abcdef',
      'org.opencontainers.image.source': 'https://example.com/source',
    });
    const { ended, said } = start([], ['--version']);
    expect(await ended).toBe(0);
    expect(said.join('')).toContain('(commit 0123456789ab)');
  });

  it('is the base of the Home Assistant app’s image, which has its labels and reads its options as root', async () => {
    const version = '--build-arg=VERSION=1.2.3';
    await store.buildFolder(
      'packaging/home-assistant/device-agent',
      'app',
      '--build-arg=IMAGE=localhost/device-agent',
      version,
    );
    const app = await store.config('app');
    expect(app.Labels).toMatchObject({ 'io.hass.type': 'addon', 'io.hass.version': '1.2.3' });
    expect([app.User, app.Entrypoint]).toEqual(['0:0', ['node', '/app/home-assistant.js']]);
    expect(readdirSync(join(await store.mount('app'), 'app'))).toContain('home-assistant.js');
  });

  it('exits with 2 without an authtoken, and says what to do', async () => {
    const { ended, said } = start(FREE);
    expect(await ended).toBe(2);
    expect(said.join('\n')).toMatch(/NGROK_AUTHTOKEN is not set.*NGROK_AUTHTOKEN_FILE.*AGENT_GATEWAY=embedded/);
  });

  it('starts on a read-only root file system, is healthy, and stops with exit code 0 as process 1', async () => {
    const { child, ended, line } = start([...FREE, 'AGENT_GATEWAY=embedded']);
    const { url } = JSON.parse(await line('local API listening'));
    await line('remote API online');
    const health = (port: string) =>
      start([`AGENT_PORT=${port}`, 'AGENT_GATEWAY=embedded'], config.Healthcheck.Test.slice(3)).ended;
    expect(await health(new URL(url).port)).toBe(0);
    expect(readdirSync(data)).toContain('api-token');
    process.kill(childOf(child.pid), 'SIGTERM');
    expect(await ended).toBe(0);
    await line('"stopped"');
    expect(await health(new URL(url).port)).toBe(3);
  });

  it('a gateway says what allows it to listen on 443 and 80, and does so then', async () => {
    const settings = ['GATEWAY_DOMAIN=localhost', 'GATEWAY_HTTPS_PORT=443', 'GATEWAY_HTTP_PORT=80'];
    const startFrom = (port: number) => start([...settings, `UNPRIVILEGED_PORTS_FROM=${port}`], ['gateway']);
    const denied = startFrom(1024);
    expect(await denied.ended).toBe(1);
    expect(denied.said.join('\n')).toMatch(
      /EACCES.*allow it with \\?"sudo sysctl net\.ipv4\.ip_unprivileged_port_start=(443|80)/,
    );
    const allowed = startFrom(80);
    await allowed.line('gateway listening');
    process.kill(childOf(allowed.child.pid), 'SIGTERM');
    expect(await allowed.ended).toBe(0);
  });

  it(
    'contains the native packages of the target platform',
    async () => {
      await store.build('for-arm', 'arm', '--target=packages');
      const modules = join(await store.mount('for-arm'), 'app/node_modules');
      const native = readdirSync(modules, { recursive: true, encoding: 'utf8' }).filter((name) =>
        name.endsWith('.node'),
      );
      expect(native.map((name) => [name.split('/')[0], machineOf(join(modules, name))]).sort()).toEqual([
        ['@libsql', 'arm'],
        ['@ngrok', 'arm'],
      ]);
    },
    BUILD_MS,
  );
});

const docker = await DockerDaemon.start();

// After the image above, in the same file: a second build beside it would take the processor from other tests.
describe('with the Docker of this machine', unless(typeof docker === 'string' ? docker : null), () => {
  const daemon = docker as DockerDaemon;
  const inspect = async (what: string, field: string) =>
    JSON.parse(await daemon.docker('inspect', `--format={{json .${field}}}`, what));

  beforeAll(() => daemon.build('device-agent'), BUILD_MS);
  afterAll(() => daemon.close());

  it('the image builds, for the platform of the machine', async () => {
    expect(await inspect('device-agent', 'Config.User')).toBe('65532:65532');
    const script = 'process.stdout.write(process.arch)';
    const run = ['run', '--rm', '--network=host', '--entrypoint=node', 'device-agent', '-e', script];
    expect(await daemon.docker(...run)).toBe(process.arch);
  });

  it('a container is healthy seconds after its start, before Docker 27 with a start interval, before 25 after half a minute', async () => {
    const [major = 0] = (await daemon.docker('version', '--format={{.Server.Version}}')).split('.').map(Number);
    const rights = ['--read-only', '--cap-drop=ALL', '--security-opt=no-new-privileges', '--network=host'];
    const settings = ['AGENT_GATEWAY=embedded', 'GATEWAY_HTTP_PORT=0', 'GATEWAY_HTTPS_PORT=0'];
    const interval = major === 25 || major === 26 ? ['--health-start-interval=5s'] : [];
    const options = [...rights, ...settings.map((line) => `--env=${line}`), ...interval];
    const container = await daemon.docker('run', '--detach', ...options, 'device-agent');
    await until(
      async () => (await inspect(container, 'State.Health.Status')) === 'healthy',
      'the container is healthy',
      {
        withinMs: major < 25 ? 45_000 : 15_000,
        everyMs: 250,
      },
    );
    await daemon.docker('stop', container);
    expect(await inspect(container, 'State.ExitCode')).toBe(0);
  }, 90_000);
});
