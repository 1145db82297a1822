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

  /**
   * The response body for a request: status 200, `application/octet-stream`.
   *
   * @param host lower case, without a port or a dot at its end
   * @param path the request target's path
   * @returns undefined when this is no known challenge: the request is then routed as usual
   */
  answer(host: string, path: string): string | undefined {
    if (!path.startsWith(PREFIX)) return undefined;
    return this.#answers.get(`${host} ${path.slice(PREFIX.length)}`);
  }
}
