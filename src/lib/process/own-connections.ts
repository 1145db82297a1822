import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { endianness } from 'node:os';
import ipaddr from 'ipaddr.js';
import { unmapped } from '../network/ip-address.ts';

/** States as Linux numbers them; half closed: this side has ended, and the peer's kernel knows. */
const STATES = { established: '01', halfClosed: '05' } as const;

/** A line of `/proc/net/tcp`: address and port of the peer, the state and the inode. */
const CONNECTION = /^\s*\d+: [0-9A-F]+:[0-9A-F]{4} ([0-9A-F]+):([0-9A-F]{4}) ([0-9A-F]{2}) (?:\S+ +){5}(\d+)/gm;

export interface OwnConnection {
  /** Of the peer, as `parseAddress` writes it. */
  readonly address: string;
  readonly port: number;
  /** Identifies the connection, unlike its descriptor. */
  readonly inode: string;
  readonly descriptor: number;
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
    for (const [, address = '', portText = '', its, inode = ''] of rows) {
      const port = Number.parseInt(portText, 16);
      if (its !== STATES[state] || !isWanted(port)) continue;
      found.set(`socket:[${inode}]`, { address: addressOf(address), port, inode });
    }
  }
  if (found.size === 0) return [];
  return readdirSync('/proc/self/fd').flatMap((name) => {
    const connection = found.get(targetOf(name));
    return connection ? [{ ...connection, descriptor: Number(name) }] : [];
  });
}

/** The table shows words of 32 bits in the machine's order. */
function addressOf(hex: string): string {
  const bytes = Buffer.from(hex, 'hex');
  return unmapped(ipaddr.fromByteArray([...(endianness() === 'LE' ? bytes.swap32() : bytes)])).toString();
}

function targetOf(descriptor: string): string {
  try {
    return readlinkSync(`/proc/self/fd/${descriptor}`);
  } catch {
    return ''; // closed since it was listed
  }
}
