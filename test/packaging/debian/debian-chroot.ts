import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { onTestFinished } from 'vitest';
import { AGENT_SERVICE } from '../../../src/service/service.ts';
import { firstOf, type Missing, programMissing } from '../../support/requirements.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { debianRoot, NO_DEBIAN_ROOT } from './debian-root.ts';

/** Why this machine cannot run programs of other architectures; null when it can. */
export const NO_EMULATION: Missing = firstOf(
  NO_DEBIAN_ROOT,
  ['arm64', 'armhf'].some((architecture) => programMissing('arch-test', architecture) !== null)
    ? 'arch-test, qemu-user-static and a mounted binfmt_misc are required'
    : null,
);

/** What the package needs, and the commands of the docs. */
const INCLUDE = ['systemd', 'curl', 'ca-certificates', 'libstdc++6', 'libgcc-s1'];

const PID_FILE = '/tmp/agent.pid';

/** Mounts an overlay in memory over a file system, and keeps it. $0: folder, $1: file system */
const OPEN = `
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$0"
mkdir "$0/upper" "$0/work" "$0/root"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$0/upper,workdir=$0/work" "$0/root"
mount -t proc proc "$0/root/proc"
for name in null zero random urandom; do touch "$0/root/dev/$name"; mount --bind /dev/$name "$0/root/dev/$name"; done
cp /etc/resolv.conf "$0/root/etc/resolv.conf"
printf '#!/bin/sh\\nexec "$@"\\n' > "$0/root/usr/local/bin/sudo"
chmod +x "$0/root/usr/local/bin/sudo"
exec chroot "$0/root" sh -c 'echo ready; exec sleep infinity'
`;

/**
 * A small Debian without a running systemd, of any architecture that this machine runs or emulates, with the network of this
 * machine. Nothing of it stays after the test.
 */
export class DebianChroot {
  private constructor(
    private readonly pid: number,
    private readonly env: NodeJS.ProcessEnv,
  ) {}

  /**
   * @param include packages besides those that the agent's package needs
   * @param env of all commands
   */
  static async open(
    architecture: string,
    include: readonly string[],
    env: NodeJS.ProcessEnv = {},
  ): Promise<DebianChroot> {
    const root = await debianRoot('trixie', architecture, [...INCLUDE, ...include]);
    const namespaces = ['--mount', '--pid', '--fork', '--kill-child'];
    const child = spawn('unshare', [...namespaces, 'sh', '-c', OPEN, temporaryFolder(), root], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const closed = once(child, 'close');
    onTestFinished(async () => {
      child.kill('SIGKILL');
      await closed;
    });
    if ((await Promise.race([once(child.stdout, 'data'), closed.then(() => null)])) === null)
      throw new Error('the system does not start');
    const inside = Number(readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8'));
    return new DebianChroot(inside, { PATH: '/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin', ...env });
  }

  /** Runs a command as root, to its end. @returns its output @throws when it fails, with its error output */
  async run(command: string): Promise<string> {
    const options = { env: this.env, maxBuffer: 1 << 26 };
    return (await promisify(execFile)('nsenter', this.#arguments(command), options)).stdout;
  }

  /** Copies a file of this machine. */
  copy(file: string, path: string): void {
    copyFileSync(file, join(`/proc/${this.pid}/root`, path));
  }

  /**
   * Starts the agent as its unit does, as far as that is possible without systemd, with its data in `/var/lib/device-agent`.
   *
   * @param program paths of Node.js and cli.js
   * @returns what stops it
   */
  startAgent(
    program: readonly [string, string],
    user: string,
    settings: Readonly<Record<string, string>>,
  ): () => Promise<void> {
    const { nodeOptions, environment } = AGENT_SERVICE;
    const [node, cli] = program;
    const given = Object.entries({ ...settings, DATA_DIR: '/var/lib/device-agent' });
    const assignments = [...environment, ...given.map(([name, value]) => `${name}=${value}`)];
    const words = [...assignments.map((each) => `'${each}'`), node, ...nodeOptions, cli, 'run'];
    const command = `
      install -d -o ${user} -m 700 /var/lib/device-agent && cd /var/lib/device-agent
      echo $$ > ${PID_FILE}
      exec setpriv --reuid=${user} --regid="$(id -g ${user})" --clear-groups env -i PATH="$PATH" ${words.join(' ')} >> /tmp/agent.log 2>&1`;
    const child = spawn('nsenter', this.#arguments(command), { env: this.env, stdio: 'inherit' });
    const closed = once(child, 'close');
    return async () => {
      await this.run(`kill "$(cat ${PID_FILE})"`);
      await closed;
    };
  }

  /** The resident memory of the agent, in bytes. Meaningless where it is emulated: most is the emulator's. */
  async agentMemory(): Promise<number> {
    const [, kib] = /^VmRSS:\s+(\d+) kB$/m.exec(await this.run(`cat /proc/$(cat ${PID_FILE})/status`)) ?? [];
    return Number(kib) * 1024;
  }

  /** The shell is one of the system, so that the command sees its processor. */
  #arguments(command: string): string[] {
    return ['-t', String(this.pid), '-m', '-p', '-r', '-w', '--', '/bin/sh', '-ec', command];
  }
}
