import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { endianness } from 'node:os';
import ipaddr from 'ipaddr.js';
import { unmapped } from '../network/ip-address.ts';

/** States as Linux numbers them; half closed: this side has ended, and the peer's kernel knows. */
const STATES = { established: '01', halfClosed: '05' } as const;

/**
 * A line of `/proc/net/tcp`: address and port of the peer, the state, the timer and when it is due, how often what is
 * unacknowledged was repeated in vain, the inode, and how long the timer runs.
 */
const CONNECTION =
  /^\s*\d+: \S+ ([0-9A-F]+):([0-9A-F]{4}) ([0-9A-F]{2}) \S+ (\d\d):([0-9A-F]+) ([0-9A-F]+) +(?:\d+ +){2}(\d+)(?: \d+ \S+ (\d+))?/gm;
const RETRANSMISSION = '01';
/** Of the table's times. */
const MS_PER_TICK = 10;

export interface OwnConnection {
  /** Of the peer, as `parseAddress` writes it. */
  readonly address: string;
  readonly port: number;
  /** Identifies the connection, unlike its descriptor. */
  readonly inode: string;
  readonly descriptor: number;
  /** For how long the peer's kernel has acknowledged nothing, in milliseconds; 0 unless something was repeated twice. */
  readonly unansweredMs: number;
}

/**
 * This process's TCP connections in a state, those of native code included; Linux only.
 *
 * @param isWanted called with the peer's port
 * @throws the system's error when the tables cannot be read
 */
export function ownConnections(state: keyof typeof STATES, isWanted: (port: number) => boolean): OwnConnection[] {
  const found = new Map<string, Omit<OwnConnection, 'descriptor'>>();
  for (const table of ['tcp', 'tcp6']) {
    const rows = readFileSync(`/proc/self/net/${table}`, 'latin1').matchAll(CONNECTION);
    for (const [, address = '', portText = '', its, timer, due = '', repeats = '', inode = '', timeout = ''] of rows) {
      const port = hex(portText);
      if (its !== STATES[state] || !isWanted(port)) continue;
      const unansweredMs = timer === RETRANSMISSION ? unanswered(hex(repeats), Number(timeout), hex(due)) : 0;
      found.set(`socket:[${inode}]`, { address: addressOf(address), port, inode, unansweredMs });
    }
  }
  if (found.size === 0) return [];
  return readdirSync('/proc/self/fd').flatMap((name) => {
    const connection = found.get(targetOf(name));
    return connection ? [{ ...connection, descriptor: Number(name) }] : [];
  });
}

const hex = (text: string) => Number.parseInt(text, 16);

/** Each repetition has doubled the timer. */
function unanswered(repeats: number, timeout: number, due: number): number {
  return repeats < 2 ? 0 : (timeout * (2 - 2 ** -repeats) - due) * MS_PER_TICK;
}

/** The table shows words of 32 bits in the machine's order. */
function addressOf(text: string): string {
  const bytes = Buffer.from(text, 'hex');
  return unmapped(ipaddr.fromByteArray([...(endianness() === 'LE' ? bytes.swap32() : bytes)])).toString();
}

function targetOf(descriptor: string): string {
  try {
    return readlinkSync(`/proc/self/fd/${descriptor}`);
  } catch {
    return ''; // closed since it was listed
  }
}
