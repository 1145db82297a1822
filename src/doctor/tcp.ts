import { readFile } from 'node:fs/promises';
import { type Check, check, NotKnown, ok } from './finding.ts';

const KERNEL = '/proc/sys/net/ipv4/tcp_congestion_control';
const COUNTS = '/proc/net/snmp';
/** Shares of segments that were sent again. Full queues of healthy networks cost less. */
const LOSSY = 0.003;
/** Fewer segments say nothing. */
const ENOUGH = 10_000;
const USE_BBR =
  "BBR carries several times as much where packets are lost, for all programs here: echo 'net.ipv4.tcp_congestion_control = bbr' | sudo tee /etc/sysctl.d/90-bbr.conf && sudo sysctl --system, then restart";

/**
 * Shows the kernel's congestion control, and how much TCP has had to send again since the machine started.
 *
 * @param read reads a file of the kernel
 */
export function tcpCheck(service: string, read = (path: string): Promise<string> => readFile(path, 'utf8')): Check {
  return check('tcp', 'TCP', async () => {
    const [control, counts] = await Promise.all([read(KERNEL), read(COUNTS)]).catch(() => {
      throw new NotKnown('this system does not tell its congestion control');
    });
    const name = control.trim();
    const share = sentAgain(counts);
    if (share === null) return ok(`congestion control ${name}; too little sent to see losses`);
    const said = ok(`congestion control ${name}; ${(100 * share).toFixed(2)} % of packets were sent again`);
    return share < LOSSY || name.startsWith('bbr') ? said : { ...said, advice: `${USE_BBR} ${service}` };
  });
}

/** Which share of the segments was sent again; null: too few to say. */
function sentAgain(counts: string): number | null {
  const [names = [], values = []] = counts
    .split('\n')
    .filter((line) => line.startsWith('Tcp:'))
    .map((line) => line.split(' '));
  const count = (name: string) => Number(values[names.indexOf(name)] ?? Number.NaN);
  const sent = count('OutSegs') + count('RetransSegs');
  return sent >= ENOUGH ? count('RetransSegs') / sent : null;
}
