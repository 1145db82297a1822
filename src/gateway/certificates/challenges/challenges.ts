import type { Duplex } from 'node:stream';
import { createSecureContext, type SecureContext, TLSSocket } from 'node:tls';
import { TLS_SERVER_OPTIONS } from '../../../lib/tls/tls-options.ts';

export interface Challenges {
  http: HttpChallenges;
  tlsAlpn: TlsAlpnChallenges;
  txt: TxtChallenges;
}

const PREFIX = '/.well-known/acme-challenge/';

/** Answers to HTTP-01 (RFC 8555, section 8.3): the plain HTTP port asks here before anything else sees the request. */
export class HttpChallenges {
  readonly #answers = new Map<string, string>();

  /** Publishes an answer; the returned function withdraws it. */
  publish(domain: string, token: string, keyAuthorization: string): () => void {
    const key = `${domain} ${token}`; // An IPv6 address has no brackets.
    this.#answers.set(key, keyAuthorization);
    return () => void this.#answers.delete(key);
  }

  /** The response body for a request: status 200, `application/octet-stream`. Without one, it is routed as usual. */
  answer(host: string, path: string): string | undefined {
    if (!path.startsWith(PREFIX)) return undefined;
    return this.#answers.get(`${host.replace(/^\[(.*)\]$/, '$1')} ${path.slice(PREFIX.length)}`);
  }
}

/** The TXT values of pending DNS-01 challenges (RFC 8555, section 8.4), by name in the challenge zone. */
export class TxtChallenges {
  // Two orders for one name may overlap: a cancelled order and its successor.
  readonly #values = new Map<string, string[]>();

  /** @param onChange called with the values at a name after they have changed */
  constructor(private readonly onChange: (name: string, values: readonly string[]) => void = () => {}) {}

  /** Adds a value at the target of the domain's `_acme-challenge` record. @returns withdraws it */
  publish(name: string, value: string): () => void {
    const key = name.toLowerCase();
    this.#values.set(key, [...this.lookup(key), value]);
    this.onChange(key, this.lookup(key));
    return () => {
      const left = this.lookup(key);
      const index = left.indexOf(value);
      if (index >= 0) left.splice(index, 1);
      if (left.length === 0) this.#values.delete(key);
      else this.#values.set(key, left);
      this.onChange(key, left);
    };
  }

  /** The values at a name (lower case, without a final dot). */
  lookup(name: string): string[] {
    return [...(this.#values.get(name) ?? [])];
  }
}

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
