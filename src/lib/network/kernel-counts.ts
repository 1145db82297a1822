import { readFile } from 'node:fs/promises';

/**
 * A count of Linux's network in `/proc/net/snmp` or `/proc/net/netstat`: for each table a line of names, then one of values.
 *
 * @returns NaN when the kernel does not have it
 */
export function kernelCount(text: string, table: string, name: string): number {
  const [names = [], values = []] = text
    .split('\n')
    .filter((line) => line.startsWith(`${table}:`))
    .map((line) => line.split(' '));
  return Number(values[names.indexOf(name)] ?? Number.NaN);
}

/** Segments that TCP has sent again since the machine started; null: the system does not say. */
export async function segmentsSentAgain(): Promise<number | null> {
  const count = kernelCount(await readFile('/proc/net/snmp', 'utf8').catch(() => ''), 'Tcp', 'RetransSegs');
  return Number.isNaN(count) ? null : count;
}
