import { backoffDelay } from '../lib/backoff.ts';
import { type Clock, systemClock } from '../lib/clock.ts';
import { withOwnSignal, withSignal } from '../lib/deadline.ts';
import { noAnswer, readAnswer } from './answer.ts';
import { chooseFetch } from './choose-fetch.ts';
import { CLOUD_API } from './cloud-api.ts';
import type { Fetch } from './fetch.ts';
import { ManagementError } from './management-error.ts';
import type { Operation } from './operations.ts';

/** Where the API is and how to call it. */
export interface ManagementClientOptions {
  /** The management URL of a gateway of your own. Default: ngrok's cloud, `https://api.ngrok.com`. */
  baseUrl?: string | undefined;
  apiKey: string;
  /** Version of the API; 2 is the only one. */
  version?: string | undefined;
  /** Milliseconds for one attempt, from its start to the last byte of the answer. Default: 30 s. */
  timeoutMs?: number | undefined;
  /** How often a call is repeated at most, where repeating is safe. Default: 3. */
  retries?: number | undefined;
  /**
   * PEM of the authority that signed the service's certificate, if it is no public one: `ca.pem` of a gateway.
   * Not together with `fetch`, which knows itself whom to trust.
   */
  ca?: string | undefined;
  /** What makes the requests, in place of the global `fetch`. */
  fetch?: Fetch | undefined;
  /** Time and chance, for tests. */
  clock?: Clock | undefined;
}

/** The particulars of one call. */
export interface Call {
  /** Fills `{id}` in the operation's path. */
  id?: string;
  query?: URLSearchParams;
  body?: unknown;
  signal?: AbortSignal | undefined;
}

/** Beyond it a timer fires at once. */
const LONGEST_TIMEOUT_MS = 2 ** 31 - 1;
const RETRY_DELAYS = { baseMs: 250, maxMs: 10_000 };
/** A service that wants us to wait longer gets no second call from here; the caller decides. */
const LONGEST_WAIT_MS = 60_000;

/** The options with their defaults. */
interface Settings {
  /** Without a slash at its end. */
  baseUrl: string;
  apiKey: string;
  version: string;
  timeoutMs: number;
  retries: number;
  clock: Clock;
}

/** Makes single calls: headers, deadline, retries, errors. Knows operations, not resources. */
export class Transport {
  readonly #options: Settings;
  readonly #fetch: Promise<Fetch>;

  /** @throws {TypeError} when an option cannot be used */
  constructor(options: ManagementClientOptions) {
    // One by one: callers pass on options of their own, and those that are undefined must not take a default's place.
    const {
      baseUrl = CLOUD_API,
      apiKey,
      version = '2',
      timeoutMs = 30_000,
      retries = 3,
      clock = systemClock,
    } = options;
    const protocol = checkBaseUrl(baseUrl);
    // Checked here, for fetch would quote the whole key in its complaint.
    if (!/^[\x21-\x7e]+$/.test(apiKey ?? '')) throw new TypeError('apiKey is missing, empty or holds a blank');
    if (!(timeoutMs >= 1 && timeoutMs <= LONGEST_TIMEOUT_MS)) {
      throw new TypeError(`timeoutMs must be from 1 to ${LONGEST_TIMEOUT_MS}`);
    }
    if (!(retries >= 0)) throw new TypeError('retries must be 0 or more');
    this.#options = { baseUrl: baseUrl.replace(/\/+$/, ''), apiKey, version, timeoutMs, retries, clock };
    this.#fetch = chooseFetch(options, protocol);
  }

  /**
   * Calls an operation, again if that is safe and may help.
   *
   * @returns the answer's JSON; undefined for a 204
   * @throws {ManagementError} when it fails
   * @throws the signal's reason, or an AbortError, when the caller aborts
   */
  async send(operation: Operation, call: Call): Promise<unknown> {
    // What waits here listens to a signal of this call's own: a program may share one among all of its calls.
    const { signal } = call;
    return signal
      ? withOwnSignal(signal, (own) => this.#repeat(operation, { ...call, signal: own }))
      : this.#repeat(operation, call);
  }

  async #repeat(operation: Operation, call: Call): Promise<unknown> {
    const { retries, clock } = this.#options;
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await this.#attempt(operation, call);
      } catch (error) {
        if (!(error instanceof ManagementError) || attempt >= retries) throw error;
        const wait = retryDelay(
          operation,
          error,
          backoffDelay(attempt, RETRY_DELAYS, () => clock.random()),
        );
        if (wait === null) throw error;
        await clock.sleep(wait, call.signal);
      }
    }
  }

  async #attempt(operation: Operation, { id, query, body, signal }: Call): Promise<unknown> {
    const { baseUrl, timeoutMs, clock } = this.#options;
    const url = `${baseUrl}${fillId(operation.path, id)}${query?.size ? `?${query}` : ''}`;
    const name = `${operation.method} ${operation.path}`;
    const fetch = await this.#fetch;
    const exchange = async (limit: AbortSignal) => {
      const answer = await fetch(url, {
        method: operation.method,
        headers: this.#headers(body !== undefined),
        // A redirect could carry the key elsewhere; the answer is reported instead.
        redirect: 'manual',
        signal: limit,
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      return { answer, text: await answer.text() };
    };
    const { answer, text } = await withSignal(exchange, name, timeoutMs, signal, clock).catch((error: unknown) => {
      signal?.throwIfAborted();
      throw noAnswer(name, error);
    });
    return readAnswer(name, answer, text);
  }

  #headers(hasBody: boolean): Record<string, string> {
    const { apiKey, version } = this.#options;
    return {
      authorization: `Bearer ${apiKey}`,
      // The service's own name of the header, and the one that ngrok's cloud wants.
      'service-version': version,
      'ngrok-version': version,
      accept: 'application/json',
      'user-agent': 'device-agent',
      ...(hasBody && { 'content-type': 'application/json' }),
    };
  }
}

/**
 * @returns the URL's scheme
 * @throws {TypeError} when paths cannot be put after it, never quoting it: it may hold a password
 */
function checkBaseUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url?.protocol !== 'https:' && url?.protocol !== 'http:')
    throw new TypeError('baseUrl must be an http or https URL');
  if (url.username || url.password)
    throw new TypeError('baseUrl must have no user name or password: apiKey is all it takes');
  if (/[?#]/.test(text)) throw new TypeError('baseUrl must have no query or fragment');
  return url.protocol;
}

function fillId(path: string, id: string | undefined): string {
  if (!path.includes('{id}')) return path;
  // An empty id would address the whole collection, and dots its parent.
  if (!id || id === '.' || id === '..') throw new TypeError(`${JSON.stringify(id)} is not an id`);
  return path.replace('{id}', () => encodeURIComponent(id));
}

/**
 * When to try again: never after a call that may have changed something, unless the service itself says
 * that it did not take it (429, 503) and when to come back.
 *
 * @param backoff milliseconds to wait when the service names none
 * @returns milliseconds, or null for not at all
 */
function retryDelay({ method }: Operation, error: ManagementError, backoff: number): number | null {
  const { status, retryAfterMs } = error;
  if ((status === 429 || status === 503) && retryAfterMs !== null) {
    // With jitter on top, so that a fleet that was told the same second does not come back in it.
    return retryAfterMs > LONGEST_WAIT_MS ? null : retryAfterMs + backoff;
  }
  const mayPass = status === null || status === 429 || status >= 500;
  return method === 'GET' && mayPass ? backoff : null;
}
