import { readFile } from 'node:fs/promises';

/** The kernel's tables of TCP sockets, and the number of the state LISTEN in them. */
const TABLES = ['/proc/net/tcp', '/proc/net/tcp6'];
const LISTEN = '0A';

/**
 * The TCP ports on which programs of this device listen, lowest first. Empty where the kernel does not tell, such as on
 * macOS.
 */
export async function listeningPorts(): Promise<number[]> {
  const tables = await Promise.all(TABLES.map((table) => readFile(table, 'utf8').catch(() => '')));
  const ports = tables.flatMap((table) => table.split('\n').slice(1)).flatMap(portIn);
  return [...new Set(ports)].sort((a, b) => a - b);
}

/** A row has the local address as `<hex address>:<hex port>` in its second column, and the state in its fourth. */
function portIn(row: string): number[] {
  const [, local = '', , state] = row.trim().split(/\s+/);
  return state === LISTEN ? [Number.parseInt(local.split(':')[1] ?? '', 16)] : [];
}
