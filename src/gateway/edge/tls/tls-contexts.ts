import { hash } from 'node:crypto';
import { createSecureContext, type SecureContext, type SecureVersion } from 'node:tls';
import { TLS_SERVER_OPTIONS } from '../../../lib/network/tls-server-options.ts';
import type { CertifiedKey } from '../../certificates/local-ca/certificate-files.ts';
import type { HandshakeDemands } from './handshake-demands.ts';

/** Contexts in the cache, some tens of KiB each with usual certificates. */
const MAX_CONTEXTS = 1024;
/** Bytes of the PEM texts that all cached contexts were created from. */
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
 * Caches TLS contexts, one for each combination of certificate and demands. Different demands never share one: a client
 * could resume a session that began without the client certificate that is now demanded.
 */
export class TlsContexts {
  /** By a digest of everything that a context was created from, least recently used first. */
  readonly #contexts = new Map<string, { context: SecureContext; bytes: number }>();
  #bytes = 0;

  /** @throws OpenSSL's error when the certificate, its key or an authority is invalid */
  contextFor(pair: CertifiedKey, demands: HandshakeDemands): SecureContext {
    const { minVersion, maxVersion, clientAuthorities, clientVerification } = demands;
    const { cert, key } = pair;
    const identity = [minVersion, maxVersion, clientVerification, cert, key, ...clientAuthorities].join('\n');
    const digest = hash('sha256', identity, 'base64');
    const cached = this.#contexts.get(digest) ?? { context: createContext(pair, demands), bytes: identity.length };
    this.#remove(digest);
    this.#contexts.set(digest, cached);
    this.#bytes += cached.bytes;
    for (const oldest of this.#contexts.keys()) {
      if (this.#contexts.size <= MAX_CONTEXTS && this.#bytes <= MAX_BYTES) break;
      this.#remove(oldest);
    }
    return cached.context;
  }

  #remove(digest: string): void {
    this.#bytes -= this.#contexts.get(digest)?.bytes ?? 0;
    this.#contexts.delete(digest);
  }
}

function createContext(pair: CertifiedKey, demands: HandshakeDemands): SecureContext {
  const { minVersion, maxVersion, clientAuthorities } = demands;
  return createSecureContext({
    ...pair,
    ...TLS_SERVER_OPTIONS,
    minVersion: VERSIONS[minVersion],
    maxVersion: VERSIONS[maxVersion],
    ...(minVersion < '1.2' && { ciphers: OLD_CIPHERS }),
    // OpenSSL resumes sessions of clients with a certificate only when the sessions have an ID context.
    ...(clientAuthorities.length > 0 && { ca: [...clientAuthorities], sessionIdContext: 'clients' }),
  });
}
