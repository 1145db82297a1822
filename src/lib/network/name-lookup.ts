import { type LookupAddress, lookup as systemLookup } from 'node:dns';
import { Resolver } from 'node:dns/promises';
import { isIP } from 'node:net';
import { Limiter } from '../limiter.ts';

/** Milliseconds for the first answer of a name server, and questions to each of them. */
const TIMEOUT_MS = 2_000;
const TRIES = 2;
/** Addresses of one name that are used: an answer may have thousands. */
const MAX_ADDRESSES = 16;

/** Of two threads that look names up for the whole process, tenants' names take one. */
const inThread = new Limiter(1);

/**
 * Finds the addresses of a name that a tenant, or a server of one, has chosen. The system's own lookup takes one of two threads
 * for as long as the name's server is silent, so it is asked only for names that the DNS does not have: those of its hosts file
 * and of its search domains.
 *
 * @param signal ends the lookup
 * @param resolver with other servers than the system's
 * @throws Error when the name has no address
 */
export async function findName(
  name: string,
  signal?: AbortSignal,
  resolver = new Resolver({ timeout: TIMEOUT_MS, tries: TRIES }),
): Promise<LookupAddress[]> {
  if (isIP(name)) return [{ address: name, family: isIP(name) }];
  // Names of one label are not in the public DNS.
  const found = name.includes('.') ? await askServers(name, signal, resolver) : [];
  const addresses = found.length > 0 ? found : await inThread.run(() => askSystem(name, signal));
  return addresses.slice(0, MAX_ADDRESSES);
}

const ABSENT: ReadonlySet<unknown> = new Set(['ENOTFOUND', 'ENODATA', 'ECONNREFUSED']);

/** @returns empty when there is no such name, or no server */
async function askServers(name: string, signal: AbortSignal | undefined, resolver: Resolver): Promise<LookupAddress[]> {
  signal?.throwIfAborted();
  const cancel = () => resolver.cancel();
  signal?.addEventListener('abort', cancel, { once: true });
  try {
    const [v4, v6] = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)]);
    signal?.throwIfAborted();
    const addresses = [addressesOf(v4, 4), addressesOf(v6, 6)].flat();
    const failures = [v4, v6].flatMap((answer) => (answer.status === 'rejected' ? [answer.reason] : []));
    const failure = failures.find(({ code }) => !ABSENT.has(code));
    if (addresses.length === 0 && failure !== undefined) throw failure;
    return addresses;
  } finally {
    signal?.removeEventListener('abort', cancel);
  }
}

function addressesOf(answer: PromiseSettledResult<string[]>, family: number): LookupAddress[] {
  return answer.status === 'fulfilled' ? answer.value.map((address) => ({ address, family })) : [];
}

async function askSystem(name: string, signal: AbortSignal | undefined): Promise<LookupAddress[]> {
  // It may have waited for others.
  signal?.throwIfAborted();
  return new Promise((resolve, reject) => {
    systemLookup(name, { all: true }, (error, addresses) => (error ? reject(error) : resolve(addresses)));
  });
}
