import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

/** The resources of a process; only on Linux. */
export interface ProcessResources {
  fds: number;
  sockets: number;
  listeners: number;
  threads: number;
  rssMib: number;
}

/** Reads the resources of a process. */
export function processResources(pid: number | undefined): ProcessResources {
  const proc = `/proc/${pid}`;
  const targets = readdirSync(`${proc}/fd`).map((fd) => targetOf(`${proc}/fd/${fd}`));
  const status = readFileSync(`${proc}/status`, 'utf8');
  const field = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1]);
  const sockets = targets.filter((target) => target.startsWith('socket:'));
  const listening = listeningSockets(proc);
  return {
    fds: targets.length,
    sockets: sockets.length,
    listeners: sockets.filter((socket) => listening.has(socket)).length,
    threads: field('Threads'),
    rssMib: field('VmRSS') / 1024,
  };
}

function targetOf(link: string): string {
  try {
    return readlinkSync(link);
  } catch {
    return 'closed meanwhile';
  }
}

/** All listening TCP and Unix sockets in the process's network namespace, as `socket:[inode]`. */
function listeningSockets(proc: string): Set<string> {
  const rows = (file: string) => readFileSync(`${proc}/net/${file}`, 'utf8').split('\n').slice(1);
  const tcp = ['tcp', 'tcp6'].flatMap(rows).map((row) => row.trim().split(/\s+/));
  const unix = rows('unix').map((row) => row.trim().split(/\s+/));
  return new Set([
    ...tcp.filter(([, , , state]) => state === '0A').map((fields) => `socket:[${fields[9]}]`),
    ...unix.filter(([, , , flags]) => flags === '00010000').map((fields) => `socket:[${fields[6]}]`),
  ]);
}
