import { RecentMap } from '../../../lib/recent-map.ts';
import type { Leaf } from './certificate-files.ts';
import type { LocalCa } from './local-ca.ts';

interface Entry {
  leaf: Promise<Leaf>;
  /** A clock that is behind that was ahead: the certificate may begin in days to come. */
  issuedAt: number;
  renewAt: number;
}

/**
 * The CA's certificates by host name, each made when first asked for. One certificate a name: many clients refuse a
 * wildcard directly below a top-level name such as localhost.
 */
export class CertificateCache {
  readonly #ca: Pick<LocalCa, 'issue'>;
  readonly #now: () => number;
  readonly #entries: RecentMap<string, Entry>;

  /** @param limit how many certificates are kept */
  constructor(ca: Pick<LocalCa, 'issue'>, limit: number, now: () => number = Date.now) {
    this.#ca = ca;
    this.#entries = new RecentMap(limit);
    this.#now = now;
  }

  /** Whether there is one for the name without issuing it. */
  has(name: string): boolean {
    return this.#entries.has(name);
  }

  /**
   * @param name a host name or IP address that the caller has found to be served here
   * @returns the same certificate to all who ask at once
   */
  leafFor(name: string): Promise<Leaf> {
    const known = this.#entries.get(name);
    const now = this.#now();
    const entry = known && known.issuedAt <= now && now < known.renewAt ? known : this.#issue(name, now);
    this.#entries.set(name, entry);
    return entry.leaf;
  }

  #issue(name: string, issuedAt: number): Entry {
    const entry: Entry = { leaf: this.#ca.issue([name]), issuedAt, renewAt: Infinity };
    entry.leaf.then(
      ({ renewAt }) => {
        entry.renewAt = renewAt;
      },
      // A failure is told to those who wait for it, and tried again for the next one.
      () => {
        if (this.#entries.get(name) === entry) this.#entries.delete(name);
      },
    );
    return entry;
  }
}
