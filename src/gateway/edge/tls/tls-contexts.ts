import { hash } from 'node:crypto';
import { createSecureContext, type SecureContext, type SecureVersion } from 'node:tls';
import type { TlsTermination } from '../../../traffic-policy/policy-subjects.ts';
import type { CertifiedKey } from '../../certificates/local-ca/leaf-store.ts';

/** How the edge is to end TLS: what endpoints can ask for, and the old versions that a TLS edge may allow as well. */
export interface HandshakeDemands extends Omit<TlsTermination, 'minVersion'> {
  readonly minVersion: TlsTermination['minVersion'] | '1.0' | '1.1';
}

/** Contexts that are kept, some tens of KiB each with usual certificates, and bytes of all that they were made of. */
const MAX_KEPT = 1024;
const MAX_BYTES = 16 * 1_048_576;

const VERSIONS: Readonly<Record<HandshakeDemands['minVersion'], SecureVersion>> = {
  '1.0': 'TLSv1',
  '1.1': 'TLSv1.1',
  '1.2': 'TLSv1.2',
  '1.3': 'TLSv1.3',
};

/** OpenSSL's own list without its security level, which no suite before TLS 1.2 reaches. */
const OLD_CIPHERS = 'DEFAULT:@SECLEVEL=0';

/**
 * TLS contexts, one for each certificate and what is demanded of clients with it. What differs must never be shared: a
 * client could resume a session that began without the certificate that is demanded of it.
 */
export class TlsContexts {
  /** By a digest of all that they were made of, those used last at the end. */
  readonly #contexts = new Map<string, { context: SecureContext; bytes: number }>();
  #bytes = 0;

  /** @throws OpenSSL's error when the certificate, its key or an authority cannot be used */
  contextFor(pair: CertifiedKey, demands: HandshakeDemands): SecureContext {
    const { minVersion, maxVersion, clientAuthorities, clientVerification } = demands;
    const { cert, key } = pair;
    const identity = [minVersion, maxVersion, clientVerification, cert, key, ...clientAuthorities].join('\n');
    const digest = hash('sha256', identity, 'base64');
    const kept = this.#contexts.get(digest) ?? { context: createContext(pair, demands), bytes: identity.length };
    this.#forget(digest);
    this.#contexts.set(digest, kept);
    this.#bytes += kept.bytes;
    for (const oldest of this.#contexts.keys()) {
      if (this.#contexts.size <= MAX_KEPT && this.#bytes <= MAX_BYTES) break;
      this.#forget(oldest);
    }
    return kept.context;
  }

  #forget(digest: string): void {
    this.#bytes -= this.#contexts.get(digest)?.bytes ?? 0;
    this.#contexts.delete(digest);
  }
}

function createContext(pair: CertifiedKey, demands: HandshakeDemands): SecureContext {
  const { minVersion, maxVersion, clientAuthorities } = demands;
  return createSecureContext({
    ...pair,
    minVersion: VERSIONS[minVersion],
    maxVersion: VERSIONS[maxVersion],
    ...(minVersion < '1.2' && { ciphers: OLD_CIPHERS }),
    // OpenSSL resumes no session with a client that is to show a certificate unless the sessions have a name.
    ...(clientAuthorities.length > 0 && { ca: [...clientAuthorities], sessionIdContext: 'clients' }),
  });
}
