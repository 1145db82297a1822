import { promises as dns, type LookupAddress, lookup } from 'node:dns';
import type { LookupFunction } from 'node:net';

const LOOPBACK: LookupAddress = { address: '127.0.0.1', family: 4 };

/**
 * Whether a name is below `localhost`. Such names are this machine (RFC 6761, section 6.3), as in browsers and curl. Many
 * systems' resolvers know only `localhost` itself.
 */
export function isBelowLocalhost(name: string): boolean {
  return /\.localhost\.?$/i.test(name);
}

/** The `lookup` of node:dns, which also resolves names below `localhost`. */
export const lookupName: LookupFunction = (name, options, done) => {
  lookup(isBelowLocalhost(name) ? LOOPBACK.address : name, options, done);
};

/** All addresses of a name, in the order of the system's resolver; also those of names below `localhost`. */
export async function addressesOf(name: string): Promise<LookupAddress[]> {
  return isBelowLocalhost(name) ? [LOOPBACK] : dns.lookup(name, { all: true, verbatim: true });
}
