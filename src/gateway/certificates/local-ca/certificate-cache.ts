import { BoundedMap } from '../../../lib/bounded-map.ts';
import type { Leaf } from './certificate-files.ts';
import type { LocalCa } from './local-ca.ts';

interface Entry {
  leaf: Promise<Leaf>;
  /** When the clock is set back behind this, the certificate may not be valid yet. */
  issuedAt: number;
  renewAt: number;
}

/**
 * The local CA's certificates by hostname, each issued on first use. Each name has its own certificate: many clients
 * reject a wildcard directly below a top-level name, for example localhost.
 */
export class CertificateCache {
  readonly #ca: Pick<LocalCa, 'issue'>;
  readonly #now: () => number;
  readonly #entries: BoundedMap<string, Entry>;

  constructor(ca: Pick<LocalCa, 'issue'>, limit: number, now: () => number = Date.now) {
    this.#ca = ca;
    this.#entries = new BoundedMap(limit);
    this.#now = now;
  }

  has(name: string): boolean {
    return this.#entries.has(name);
  }

  /** Concurrent callers share one certificate. The caller has checked that this gateway serves the name. */
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
      // The current callers get the error; the next call tries again.
      () => {
        if (this.#entries.get(name) === entry) this.#entries.delete(name);
      },
    );
    return entry;
  }
}
