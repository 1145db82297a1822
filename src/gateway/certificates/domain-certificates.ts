import { createSecureContext } from 'node:tls';
import type { Log } from '../../lib/log.ts';
import { RecentMap } from '../../lib/recent-map.ts';
import type { Store } from '../store/store.ts';
import type { CertifiedKey } from './local-ca/certificate-files.ts';

/** Certificates that are kept, with their keys. */
const MAX_KEPT = 1024;

/**
 * The certificates of reserved domains, uploaded or issued, and of the gateway's own names. The store is asked each
 * time which certificate it is, so that a change shows with the next handshake; what a certificate holds never changes.
 */
export class DomainCertificates {
  /** By certificate; null: unusable, which is told once. */
  readonly #pairs = new RecentMap<string, CertifiedKey | null>(MAX_KEPT);

  constructor(
    private readonly store: Pick<Store, 'ownDomains' | 'reservedDomains' | 'tlsCertificates'>,
    /** The name for which the local CA vouches in any case; null: there is none. */
    private readonly exception: string | null,
    private readonly log: Log,
  ) {}

  /**
   * The certificate to serve a name with.
   *
   * @param host lower case
   * @returns null when there is none for it but the local CA's
   */
  pairFor(host: string): CertifiedKey | null {
    if (host === this.exception) return null;
    const { ownDomains, reservedDomains } = this.store;
    const id = reservedDomains.certificateFor(host) ?? ownDomains.certificateFor(host);
    if (id === null) return null;
    const known = this.#pairs.get(id);
    const pair = known === undefined ? this.#open(id) : known;
    this.#pairs.set(id, pair);
    return pair;
  }

  #open(id: string): CertifiedKey | null {
    try {
      const stored = this.store.tlsCertificates.keyPair(id);
      if (!stored) return null;
      const pair = { cert: stored.certificatePem, key: stored.privateKeyPem };
      // Whether it can be served is found out once, and not with each handshake.
      createSecureContext(pair);
      return pair;
    } catch (err) {
      this.log.error({ err, certificate: id }, 'a certificate cannot be served; the local CA’s is instead');
      return null;
    }
  }
}
