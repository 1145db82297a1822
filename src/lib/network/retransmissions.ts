import { readFile } from 'node:fs/promises';

/** What TCP has sent since this machine started: segments, and those of them that were sent again. */
export interface SentSegments {
  sent: number;
  again: number;
}

const COUNTS = '/proc/net/snmp';

/** @returns null where the system does not count them in the way of Linux */
export async function sentSegments(
  read = (path: string): Promise<string> => readFile(path, 'utf8'),
): Promise<SentSegments | null> {
  const text = await read(COUNTS).catch(() => '');
  const [names = [], values = []] = text
    .split('\n')
    .filter((line) => line.startsWith('Tcp:'))
    .map((line) => line.split(' '));
  const count = (name: string) => Number(values[names.indexOf(name)] ?? Number.NaN);
  const again = count('RetransSegs');
  const sent = count('OutSegs') + again;
  return Number.isNaN(sent) ? null : { sent, again };
}
