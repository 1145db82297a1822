import type { CaaRecord } from 'node:dns';
import { Resolver } from 'node:dns/promises';
import { IssueError } from './certificate-issuer.ts';

const TIMEOUT_MS = 5000;
const TRIES = 2;

/** Error codes for a name that does not exist, or has no such record. */
const ABSENT = new Set(['ENOTFOUND', 'ENODATA']);

/** Lookups in the public DNS. A missing name or record is an empty list; a failed lookup is an {@link IssueError}. */
export class DnsLookup {
  readonly #resolver = new Resolver({ timeout: TIMEOUT_MS, tries: TRIES });
  readonly #signal: AbortSignal;

  /**
   * @param servers resolvers, `ip` or `ip:port`; null: the system's
   * @param signal cancels every lookup
   */
  constructor(servers: readonly string[] | null, signal: AbortSignal) {
    if (servers) this.#resolver.setServers(servers);
    this.#signal = signal;
  }

  cname(name: string): Promise<string[]> {
    return this.#ask(`CNAME of ${name}`, () => this.#resolver.resolveCname(name));
  }

  caa(name: string): Promise<CaaRecord[]> {
    return this.#ask(`CAA of ${name}`, () => this.#resolver.resolveCaa(name));
  }

  async txt(name: string): Promise<string[]> {
    const records = await this.#ask(`TXT of ${name}`, () => this.#resolver.resolveTxt(name));
    return records.map((parts) => parts.join(''));
  }

  async addresses(name: string): Promise<string[]> {
    const v4 = this.#ask(`A of ${name}`, () => this.#resolver.resolve4(name));
    const v6 = this.#ask(`AAAA of ${name}`, () => this.#resolver.resolve6(name));
    return (await Promise.all([v4, v6])).flat();
  }

  async #ask<T>(what: string, lookup: () => Promise<T[]>): Promise<T[]> {
    this.#signal.throwIfAborted();
    const cancel = () => this.#resolver.cancel();
    this.#signal.addEventListener('abort', cancel, { once: true });
    try {
      return await lookup();
    } catch (cause) {
      this.#signal.throwIfAborted();
      const code = String((cause as NodeJS.ErrnoException).code);
      if (ABSENT.has(code)) return [];
      throw new IssueError('INTERNAL_ERROR', `The DNS lookup of ${what} failed (${code}).`, { cause });
    } finally {
      this.#signal.removeEventListener('abort', cancel);
    }
  }
}
