import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { type Outcome, requireFreshBuild } from './agent-process.ts';

const SYSTEMD = '/lib/systemd/systemd';
/** After that, the machine counts as one that cannot boot. */
const BOOT_MS = 120_000;
let booted = 0;
let cables = 0;

/**
 * Mounts a writable in-memory overlay over a file system, and starts systemd there. Over this machine's, with the program.
 * $0: folder, $1: repository, $2: its node_modules, $3: Node.js, $4: root of the file system
 */
const BOOT = `
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$0"
mkdir "$0/upper" "$0/work" "$0/root"
mount -t overlay overlay -o "lowerdir=$4,upperdir=$0/upper,workdir=$0/work" "$0/root"
cd "$0/root"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 none sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/shm dev/pts
mount -t tmpfs tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for name in null zero full random urandom tty; do touch dev/$name; mount --bind /dev/$name dev/$name; done
ip link set lo up
mkdir -p old
if [ "$4" = / ]; then
mkdir -p home/pi/device-agent/node_modules
cp -r "$1/dist" "$1/defaults" "$1/package.json" home/pi/device-agent
chown -R 1000:1000 home/pi && chmod 700 home/pi
mount --bind "$2" home/pi/device-agent/node_modules
rm -f usr/local/bin/node
# root's own, as on a device: updates refuse another user's.
if [ -O "$3" ]; then touch usr/local/bin/node && mount --bind "$3" usr/local/bin/node; else cp "$3" usr/local/bin/node; fi
fi
printf '[Unit]\\nRequires=systemd-journald.service\\nAfter=systemd-journald.service\\n' > etc/systemd/system/small.target
rm -rf etc/systemd/system/device-agent* etc/device-agent* var/lib/device-agent*
pivot_root . old
umount -l /old
mount --make-rshared /
exec env -i container=test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin ${SYSTEMD} --unit=small.target
`;

/** The mount point of cgroup2, or null. */
function cgroupMount(): string | null {
  const mounts = readFileSync('/proc/self/mounts', 'utf8').split('\n');
  return mounts.map((line) => line.split(' ')).find(([, , type]) => type === 'cgroup2')?.[1] ?? null;
}

/**
 * A small substitute for a Raspberry Pi: a real systemd in its own namespaces, without a network until it is connected to
 * another one. The program is in the private home folder of a user.
 */
export class SystemdMachine {
  /** Path of the program for `install`. */
  static readonly CLI = '/home/pi/device-agent/dist/cli.js';
  /** Path of a Node.js that every user may run. */
  static readonly NODE = '/usr/local/bin/node';

  private constructor(
    private readonly child: ChildProcess,
    private readonly pid: number,
    private readonly folder: string,
    private readonly cgroup: string,
  ) {}

  /**
   * Boots a machine; null where this is not supported, for example without root.
   *
   * @param root folder with another system, which stays unchanged and lacks the program
   */
  static async boot(root = '/'): Promise<SystemdMachine | null> {
    const mount = process.platform === 'linux' && process.geteuid?.() === 0 ? cgroupMount() : null;
    if (mount === null || !existsSync(SYSTEMD)) return null;
    const folder = mkdtempSync(join(tmpdir(), 'systemd-machine-'));
    booted += 1;
    const cgroup = join(mount, `device-agent-test-${process.pid}-${booted}`);
    try {
      mkdirSync(cgroup);
    } catch {
      return null; // a container without permission to delegate cgroups
    }
    const enter = `echo $$ > ${cgroup}/cgroup.procs && exec unshare --mount --pid --fork --kill-child --uts --ipc --cgroup --net sh -c "$0" "$@"`;
    const repository = process.cwd();
    const args = [folder, repository, realpathSync('node_modules'), process.execPath, root];
    const child = spawn('sh', ['-c', enter, BOOT, ...args], { stdio: 'ignore' });
    process.once('exit', () => child.kill('SIGKILL'));
    const machine = await SystemdMachine.#whenBooted(child, folder, cgroup);
    if (machine === null) await SystemdMachine.#remove(child, folder, cgroup);
    return machine;
  }

  static async #whenBooted(child: ChildProcess, folder: string, cgroup: string): Promise<SystemdMachine | null> {
    for (const end = Date.now() + BOOT_MS; Date.now() < end && child.exitCode === null; await delay(50)) {
      const [pid] = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8').split(' ');
      if (!pid) continue;
      const machine = new SystemdMachine(child, Number(pid), folder, cgroup);
      const { stdout } = await machine.run('systemctl', 'is-active', 'small.target');
      if (stdout === 'active\n') return machine;
    }
    return null;
  }

  /** Connects both machines by a cable between network cards that have no other use. */
  async connect(address: string, other: SystemdMachine, otherAddress: string): Promise<void> {
    const card = `card${++cables}`;
    const ends = [card, 'netns', String(this.pid), 'type', 'veth', 'peer', 'name', card, 'netns', String(other.pid)];
    await promisify(execFile)('ip', ['link', 'add', ...ends]);
    for (const [machine, cidr] of [[this, address] as const, [other, otherAddress] as const]) {
      await machine.run('ip', 'address', 'add', cidr, 'dev', card);
      await machine.run('ip', 'link', 'set', card, 'up');
    }
  }

  /** Connects the machine by a cable to this one. */
  async connectToHost(address: string, hostAddress: string): Promise<void> {
    const card = `card${++cables}`;
    const host = `${card}-${process.pid}`.slice(0, 15);
    const run = promisify(execFile);
    await run('ip', ['link', 'add', card, 'netns', String(this.pid), 'type', 'veth', 'peer', 'name', host]);
    await run('ip', ['address', 'add', hostAddress, 'dev', host]);
    await run('ip', ['link', 'set', host, 'up']);
    await this.run('ip', 'address', 'add', address, 'dev', card);
    await this.run('ip', 'link', 'set', card, 'up');
  }

  /** Runs a command as root. */
  run(...command: string[]): Promise<Outcome> {
    const args = ['-t', String(this.pid), '-m', '-p', '-u', '-i', '-n', '-C', '-r', '-w', '--', ...command];
    return new Promise((resolve) => {
      // Of this process's environment, the machine gets nothing else.
      execFile('nsenter', args, { timeout: 300_000, env: { PATH: process.env.PATH } }, (error, stdout, stderr) => {
        resolve({ code: error ? Number(error.code ?? -1) : 0, stdout, stderr });
      });
    });
  }

  /** Runs a command in a folder, as root or as the user of the home folder. */
  runIn(folder: string, user: 'root' | 'pi', ...command: string[]): Promise<Outcome> {
    const as = user === 'root' ? [] : ['setpriv', '--reuid=1000', '--regid=1000', '--clear-groups'];
    return this.run('sh', '-c', 'cd "$0" && exec "$@"', folder, ...as, ...command);
  }

  /** Runs the program's command line as root. */
  deviceAgent(...args: string[]): Promise<Outcome> {
    requireFreshBuild();
    return this.run(SystemdMachine.NODE, SystemdMachine.CLI, ...args);
  }

  async write(path: string, text: string): Promise<void> {
    await this.run('sh', '-c', 'mkdir -p "$(dirname "$0")" && printf %s "$1" > "$0"', path, text);
  }

  async property(service: string, name: string): Promise<string> {
    return (await this.run('systemctl', 'show', '--value', '--property', name, service)).stdout.trim();
  }

  async journal(service: string): Promise<string> {
    return (await this.run('journalctl', '-o', 'cat', '-u', service)).stdout;
  }

  async end(): Promise<void> {
    await SystemdMachine.#remove(this.child, this.folder, this.cgroup);
  }

  static async #remove(child: ChildProcess, folder: string, cgroup: string): Promise<void> {
    const ended = new Promise((resolve) => child.once('close', resolve));
    if (child.exitCode === null && child.signalCode === null) {
      child.kill('SIGKILL');
      await ended;
    }
    rmSync(folder, { recursive: true, force: true });
    for (let attempt = 0; attempt < 50 && existsSync(cgroup); attempt++) {
      spawnSync('find', [cgroup, '-depth', '-type', 'd', '-exec', 'rmdir', '{}', ';'], { stdio: 'ignore' });
      await delay(100); // its processes may still be exiting
    }
  }
}
