import { readFile } from 'node:fs/promises';
import { kernelCount } from '../lib/network/kernel-counts.ts';
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
  const again = kernelCount(counts, 'Tcp', 'RetransSegs');
  const sent = kernelCount(counts, 'Tcp', 'OutSegs') + again;
  return sent >= ENOUGH ? again / sent : null;
}
