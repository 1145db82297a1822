import { promises as dns, type LookupAddress } from 'node:dns';
import { networkInterfaces } from 'node:os';
import { isLoopbackHost } from '../../lib/network/ip-address.ts';
import { withDeadline } from '../../lib/time/deadline.ts';

export interface Localhost {
  /** In the order in which to try them: first those that the system's resolver knows. */
  addresses: LookupAddress[];
  /** Whether the system's resolver gives the same, so that other programs connect to the same upstreams. */
  isComplete: boolean;
}

type Resolve = (name: string) => Promise<LookupAddress[]>;

const V4: LookupAddress = { address: '127.0.0.1', family: 4 };
const V6: LookupAddress = { address: '::1', family: 6 };
/** The file of hosts seldom changes, and a look-up costs more than the connection. */
const FRESH_MS = 60_000;
/** Where the file of hosts has no localhost, a name server is asked, which need not answer. */
const LOOKUP_MS = 500;

/**
 * Resolves `localhost` to all loopback addresses of this machine. The system's resolver leaves out what its file of hosts
 * does not have: often ::1, where Vite, Rails and Hugo listen, and in some images both.
 */
export class LocalhostResolver {
  #resolved: Promise<Localhost> | null = null;
  #resolvedAt = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly system: Resolve = (name) => dns.lookup(name, { all: true, verbatim: true }),
    private readonly hasIpv6: () => boolean = hasIpv6Loopback,
  ) {}

  /** Never rejects. */
  resolve(): Promise<Localhost> {
    if (this.#resolved === null || performance.now() - this.#resolvedAt >= FRESH_MS) {
      this.#resolvedAt = performance.now();
      this.#resolved = this.#resolve();
    }
    return this.#resolved;
  }

  async #resolve(): Promise<Localhost> {
    const asked = withDeadline(this.system('localhost'), 'resolving localhost', LOOKUP_MS);
    const found = await asked.catch((): LookupAddress[] => []);
    const known = found.filter(({ address }) => isLoopbackHost(address));
    const missing = [V4, ...(this.hasIpv6() ? [V6] : [])].filter(({ address }) => !known.some(isAt(address)));
    return { addresses: [...known, ...missing], isComplete: missing.length === 0 && known.length === found.length };
  }
}

function isAt(address: string): (one: { address: string }) => boolean {
  return (one) => one.address === address;
}

function hasIpv6Loopback(): boolean {
  return Object.values(networkInterfaces()).some((found) => found?.some(isAt(V6.address)));
}
