import { createSecureContext } from 'node:tls';
import { BoundedMap } from '../../lib/bounded-map.ts';
import type { Log } from '../../lib/log/log.ts';
import { readKeyPair } from '../../lib/tls/usual-keys.ts';
import type { Store } from '../store/store.ts';
import type { CertifiedKey } from './local-ca/certificate-files.ts';

const MAX_KEPT = 1024;

/** The certificates of reserved and own domains. Which one a name has is looked up after every commit. */
export class DomainCertificates {
  /** By certificate id; null: unusable, which is logged once. */
  readonly #pairs = new BoundedMap<string, CertifiedKey | null>(MAX_KEPT);
  /** The certificate for a hostname, lower case; null when the local CA's is used instead. */
  readonly pairFor: (host: string) => CertifiedKey | null;

  constructor(
    private readonly store: Pick<Store, 'database' | 'ownDomains' | 'reservedDomains' | 'tlsCertificates'>,
    /** The name that always uses the local CA's certificate; null: no such name. */
    private readonly exception: string | null,
    private readonly log: Log,
  ) {
    this.pairFor = store.database.untilCommit((host) => this.#readPair(host));
  }

  #readPair(host: string): CertifiedKey | null {
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
      // An unusable certificate is detected once, not with every handshake.
      const pair = readKeyPair(stored.certificatePem, stored.privateKeyPem);
      createSecureContext(pair);
      return pair;
    } catch (err) {
      this.log.error({ err, certificate: id }, 'certificate unusable; serving one of the local CA');
      return null;
    }
  }
}
