import type { Duplex } from 'node:stream';
import { createSecureContext, type SecureContext, TLSSocket } from 'node:tls';
import { TLS_SERVER_OPTIONS } from '../../../lib/network/tls-server-options.ts';

/** The only protocol that a validating client offers (RFC 8737, section 6.2). */
export const ACME_TLS_PROTOCOL = 'acme-tls/1';

/** A validation is one handshake. */
const HANDSHAKE_MS = 10_000;

/** The certificates of pending TLS-ALPN-01 challenges (RFC 8737). */
export class TlsAlpnChallenges {
  readonly #contexts = new Map<string, SecureContext>();

  /** Publishes a challenge's certificate; the returned function withdraws it. */
  publish(domain: string, certificatePem: string | Buffer, privateKeyPem: string | Buffer): () => void {
    const context = createSecureContext({ ...TLS_SERVER_OPTIONS, cert: certificatePem, key: privateKeyPem });
    this.#contexts.set(domain, context);
    return () => {
      if (this.#contexts.get(domain) === context) this.#contexts.delete(domain);
    };
  }

  /** The certificate for a connection whose hello offers `acme-tls/1`; without one, the connection must be refused. */
  context(servername: string): SecureContext | undefined {
    return this.#contexts.get(servername.toLowerCase());
  }
}

/** Serves a validation: one handshake, then the connection is closed (RFC 8737, section 3). The ClientHello is unread. */
export function answerTlsAlpn(socket: Duplex, secureContext: SecureContext): void {
  const secured = new TLSSocket(socket, { isServer: true, secureContext, ALPNProtocols: [ACME_TLS_PROTOCOL] });
  const close = () => {
    clearTimeout(timer);
    secured.destroy();
    socket.destroy();
  };
  const timer = setTimeout(close, HANDSHAKE_MS);
  secured.on('secure', () => secured.end());
  // A failed handshake only concerns its validator.
  secured.on('error', close);
  secured.on('close', close);
  secured.resume();
}
