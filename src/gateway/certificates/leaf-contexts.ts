import { createSecureContext, type SecureContext } from 'node:tls';
import type { LocalCa } from './local-ca.ts';

interface Entry {
  context: Promise<SecureContext>;
  renewAt: number;
}

/**
 * TLS contexts by host name, each with a certificate of its own, made when first asked for. One
 * certificate a name: many clients refuse a wildcard directly below a top-level name such as localhost.
 */
export class LeafContexts {
  readonly #ca: Pick<LocalCa, 'issue'>;
  readonly #limit: number;
  readonly #now: () => number;
  /** In order of last use, the oldest first. */
  readonly #entries = new Map<string, Entry>();

  /** @param limit how many contexts are kept, some tens of KiB each */
  constructor(ca: Pick<LocalCa, 'issue'>, limit: number, now: () => number = Date.now) {
    this.#ca = ca;
    this.#limit = limit;
    this.#now = now;
  }

  /** Whether there is a context for the name without issuing a certificate. */
  has(name: string): boolean {
    return this.#entries.has(name);
  }

  /**
   * @param name a host name or IP address that the caller has found to be served here
   * @returns the same context to all who ask at once
   */
  contextFor(name: string): Promise<SecureContext> {
    const known = this.#entries.get(name);
    this.#entries.delete(name);
    const entry = known && this.#now() < known.renewAt ? known : this.#issue(name);
    this.#entries.set(name, entry);
    const [oldest] = this.#entries.keys();
    if (this.#entries.size > this.#limit && oldest !== undefined) this.#entries.delete(oldest);
    return entry.context;
  }

  #issue(name: string): Entry {
    const entry: Entry = {
      context: this.#makeContext(name, (renewAt) => (entry.renewAt = renewAt)),
      renewAt: Infinity,
    };
    // A failure is told to those who wait for it, and tried again for the next one.
    entry.context.catch(() => {
      if (this.#entries.get(name) === entry) this.#entries.delete(name);
    });
    return entry;
  }

  async #makeContext(name: string, setRenewal: (renewAt: number) => void): Promise<SecureContext> {
    const { cert, key, renewAt } = await this.#ca.issue([name]);
    setRenewal(renewAt);
    return createSecureContext({ cert, key, minVersion: 'TLSv1.2' });
  }
}
