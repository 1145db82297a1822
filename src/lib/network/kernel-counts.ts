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
