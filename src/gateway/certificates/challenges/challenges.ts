import type { TlsAlpnChallenges } from './challenge-tls-alpn.ts';

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
    const key = `${domain} ${token}`;
    this.#answers.set(key, keyAuthorization);
    return () => void this.#answers.delete(key);
  }

  /** The response body for a request: status 200, `application/octet-stream`. Without one, it is routed as usual. */
  answer(host: string, path: string): string | undefined {
    if (!path.startsWith(PREFIX)) return undefined;
    return this.#answers.get(`${host} ${path.slice(PREFIX.length)}`);
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
