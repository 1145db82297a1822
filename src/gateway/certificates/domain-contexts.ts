import { createSecureContext, type SecureContext } from 'node:tls';
import type { Log } from '../../lib/log.ts';
import type { Store } from '../store/store.ts';

/** Contexts that are kept, some tens of KiB each. */
const MAX_KEPT = 1024;

/**
 * TLS contexts with the certificates of reserved domains, uploaded or issued. The store is asked each time which
 * certificate it is, so that a change shows with the next handshake; what a certificate holds never changes.
 */
export class DomainContexts {
  /** By certificate, in order of last use, the oldest first; null: unusable, which is told once. */
  readonly #contexts = new Map<string, SecureContext | null>();

  constructor(
    private readonly store: Pick<Store, 'reservedDomains' | 'tlsCertificates'>,
    private readonly log: Log,
  ) {}

  /**
   * The context to serve a name with.
   *
   * @param host lower case
   * @returns null when no reserved domain has a certificate for it
   */
  contextFor(host: string): SecureContext | null {
    const id = this.store.reservedDomains.certificateFor(host);
    if (id === null) return null;
    const known = this.#contexts.get(id);
    const context = known === undefined ? this.#open(id) : known;
    this.#contexts.delete(id);
    this.#contexts.set(id, context);
    const [oldest] = this.#contexts.keys();
    if (this.#contexts.size > MAX_KEPT && oldest !== undefined) this.#contexts.delete(oldest);
    return context;
  }

  #open(id: string): SecureContext | null {
    try {
      const pair = this.store.tlsCertificates.keyPair(id);
      return pair && createSecureContext({ cert: pair.certificatePem, key: pair.privateKeyPem, minVersion: 'TLSv1.2' });
    } catch (err) {
      this.log.error({ err, certificate: id }, 'a certificate cannot be served; the local CA’s is instead');
      return null;
    }
  }
}
