import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { BASE_ARGUMENTS, copyBases } from './container-image.ts';
import { firstOf, type Missing, NO_LINUX, NO_ROOT, programMissing } from './requirements.ts';
import { until } from './until.ts';

/** Debian's own, where another one comes first in the path. */
const DOCKER = existsSync('/usr/bin/docker') ? '/usr/bin/docker' : 'docker';

const NO_DOCKER: Missing = firstOf(
  NO_LINUX,
  NO_ROOT,
  programMissing('dockerd', '--version') && 'docker.io is not installed',
  programMissing('env', 'DOCKER_BUILDKIT=1', DOCKER, 'build', '--help') && 'docker-buildx is not installed',
);

/** A Docker daemon of the test's own, with one network, that of the host. It leaves the firewall alone. */
export class DockerDaemon {
  private constructor(
    private readonly folder: string,
    private readonly host: string,
    private readonly end: () => Promise<void>,
  ) {}

  /** @returns a running daemon, or why this machine cannot run one */
  static async start(): Promise<DockerDaemon | string> {
    if (NO_DOCKER !== null) return NO_DOCKER;
    const folder = mkdtempSync(join(tmpdir(), 'docker-'));
    const host = `unix://${join(folder, 'socket')}`;
    const log = openSync(join(folder, 'log'), 'w');
    const own = ['data-root', 'exec-root', 'pidfile'].map((name) => `--${name}=${join(folder, name)}`);
    const noNetwork = ['--bridge=none', '--userland-proxy=false', '--iptables=false', '--ip6tables=false'];
    // What it mounts goes with its namespace.
    const command = ['--mount', 'dockerd', `--host=${host}`, ...own, ...noNetwork];
    const child = spawn('unshare', command, { stdio: ['ignore', log, log] });
    closeSync(log);
    process.once('exit', () => child.kill());
    const ended = once(child, 'exit');
    const daemon = new DockerDaemon(folder, host, async () => {
      child.kill();
      await ended;
      rmSync(folder, { recursive: true, force: true });
    });
    const answers = () =>
      daemon.docker('version').then(
        () => true,
        () => child.exitCode !== null,
      );
    await until(answers, 'dockerd answers', { everyMs: 200 });
    if (child.exitCode === null) return daemon;
    const [reason] = readFileSync(join(folder, 'log'), 'utf8').trim().split('\n').slice(-1);
    await daemon.close();
    return `dockerd does not start here: ${reason}`;
  }

  /** Builds the repository's Dockerfile with BuildKit, on substitutes of its base images from files of this machine. */
  async build(name: string): Promise<void> {
    for (const { name: base, folder, env } of copyBases(this.folder)) {
      const archive = `${folder}.tar`;
      await promisify(execFile)('tar', ['--create', `--file=${archive}`, `--directory=${folder}`, '.']);
      await this.docker('import', ...env.map((assignment) => `--change=ENV ${assignment}`), archive, base);
      for (const path of [folder, archive]) rmSync(path, { recursive: true });
    }
    await this.docker('build', '--network=host', ...BASE_ARGUMENTS, `--tag=${name}`, '.');
  }

  /** Runs a command of `docker`, and returns what it prints. */
  async docker(...args: string[]): Promise<string> {
    const env = { ...process.env, DOCKER_HOST: this.host, DOCKER_BUILDKIT: '1' };
    return (await promisify(execFile)(DOCKER, args, { env, maxBuffer: 1 << 26 })).stdout.trim();
  }

  /** Ends the daemon with its containers, and removes its files. */
  close(): Promise<void> {
    return this.end();
  }
}
