import { type Child, type Place, startChild } from './process.ts';

export interface LinkOptions {
  /** One way, in milliseconds. */
  delay: number;
  /** Mbit/s; 0: as fast as the machine. */
  rate: number;
  /** Percent of the packets that are lost. */
  loss: number;
  /** Milliseconds of packets that wait for the link; further ones are lost. */
  queue: number;
}

/** The two hosts that a link joins: a gateway with its clients, and a device. */
export interface Link {
  gateway: Place;
  device: Place;
  stop(): Promise<void>;
}

interface Ends {
  near: { net: string; address: string };
  far: { net: string; address: string };
}

/** Creates a link between two network namespaces. They end with it. */
export async function startLink(options: LinkOptions): Promise<Link> {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) {
    throw new Error('the wan benchmark creates network namespaces: run it on Linux as root');
  }
  const program = new URL('../../bench/support/link.py', import.meta.url).pathname;
  const recognise = (line: string) => JSON.parse(line) as Ends;
  let child: Child<Ends>;
  try {
    child = await startChild('python3', [program, JSON.stringify(options)], {}, recognise);
  } catch (error) {
    throw new Error('the link failed to start: it needs python3, ip, nsenter and /dev/net/tun', { cause: error });
  }
  const { near, far } = child.ready;
  return { gateway: placeAt(near), device: placeAt(far), stop: () => child.stop() };
}

function placeAt({ net, address }: Ends['near']): Place {
  return { launcher: ['nsenter', `--net=${net}`, '--'], address };
}
