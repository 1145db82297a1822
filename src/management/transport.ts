import { z } from 'zod';
import { hasErrno, messageOf } from '../lib/errors.ts';
import { parseRetryAfter } from '../lib/http/retry-after.ts';
import { isBelowLocalhost } from '../lib/network/loopback-names.ts';
import { backoffDelay } from '../lib/time/backoff.ts';
import { type Clock, systemClock } from '../lib/time/clock.ts';
import { DeadlineExceeded, withOwnSignal, withSignal } from '../lib/time/deadline.ts';
import type { ManagementClientOptions } from './client-types.ts';
import type { Fetch, FetchAnswer } from './fetch-trusting.ts';
import { ManagementError, TIMEOUT, UNREACHABLE, UNREADABLE_ANSWER } from './management-error.ts';
import type { Operation } from './operations.ts';

/** Arguments of one call. */
export interface Call {
  /** Fills `{id}` in the operation's path. */
  id?: string;
  /** Fills `{type}`. */
  type?: string;
  query?: URLSearchParams;
  body?: unknown;
  signal?: AbortSignal | undefined;
}

/** Timers with longer delays fire at once. */
const LONGEST_TIMEOUT_MS = 2 ** 31 - 1;
const RETRY_DELAYS = { baseMs: 250, maxMs: 10_000 };
/** Calls are not retried when Retry-After asks for more; the caller decides. */
const LONGEST_WAIT_MS = 60_000;

/** The options with their defaults. */
interface Settings {
  apiKey: string;
  version: string;
  timeoutMs: number;
  retries: number;
  clock: Clock;
}

/** Lets `console.log` show a text in place of an object, whose members are hundreds of lines of schemas. */
export function showAs(object: object, text: string): void {
  Object.defineProperty(object, Symbol.for('nodejs.util.inspect.custom'), { value: () => text });
}

/** Calls operations: headers, deadlines, retries and errors. */
export class Transport {
  readonly #options: Settings;
  readonly #fetch: Promise<Fetch>;
  readonly #hasOwnFetch: boolean;
  /** Without a trailing slash. */
  readonly baseUrl: string;

  /** @throws {TypeError} when an option is invalid */
  constructor(options: ManagementClientOptions) {
    // Destructured with defaults: a spread would let undefined options override them.
    const {
      baseUrl = CLOUD_API,
      apiKey,
      version = '2',
      timeoutMs = 30_000,
      retries = 3,
      clock = systemClock,
    } = options;
    const url = checkBaseUrl(baseUrl);
    // Checked here, because fetch would quote the whole key in its error.
    if (!/^[\x21-\x7e]+$/.test(apiKey ?? ''))
      throw new TypeError(
        'apiKey is missing, empty or contains invalid characters: pass { apiKey } with a key for this API',
      );
    if (!(timeoutMs >= 1 && timeoutMs <= LONGEST_TIMEOUT_MS)) {
      throw new TypeError(`timeoutMs must be from 1 to ${LONGEST_TIMEOUT_MS}`);
    }
    if (!(retries >= 0)) throw new TypeError('retries must be 0 or more');
    this.baseUrl = baseUrl.replace(/\/+$/, '');
    this.#options = { apiKey, version, timeoutMs, retries, clock };
    this.#fetch = chooseFetch(options, url);
    this.#hasOwnFetch = options.fetch !== undefined;
  }

  /**
   * Calls an operation; retries it if that is safe and can help. Returns the response's JSON; undefined for a 204.
   *
   * @throws {ManagementError} when it fails
   * @throws the signal's reason or an AbortError when the caller aborts
   */
  async send(operation: Operation, call: Call): Promise<unknown> {
    // A separate signal per call: programs may share one among many calls, and Node warns at 11 listeners.
    const { signal } = call;
    return signal
      ? withOwnSignal(signal, (own) => this.#sendWithRetries(operation, { ...call, signal: own }))
      : this.#sendWithRetries(operation, call);
  }

  async #sendWithRetries(operation: Operation, call: Call): Promise<unknown> {
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

  async #attempt(operation: Operation, { id, type, query, body, signal }: Call): Promise<unknown> {
    const { timeoutMs, clock } = this.#options;
    const url = `${this.baseUrl}${filled(operation.path, { id, type })}${query?.size ? `?${query}` : ''}`;
    const name = `${operation.method} ${operation.path}`;
    const fetch = await this.#fetch;
    const exchange = async (limit: AbortSignal) => {
      const answer = await fetch(url, {
        method: operation.method,
        headers: this.#headers(body !== undefined),
        // Redirects are reported, not followed: they could send the key to another host.
        redirect: 'manual',
        signal: limit,
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      return { answer, text: await answer.text() };
    };
    const { answer, text } = await withSignal(exchange, name, timeoutMs, signal, clock).catch((error: unknown) => {
      signal?.throwIfAborted();
      throw noAnswer(name, error, this.#hasOwnFetch || !isUntrusted(error) ? '' : UNTRUSTED_HINT);
    });
    return readAnswer(name, answer, text);
  }

  #headers(hasBody: boolean): Record<string, string> {
    const { apiKey, version } = this.#options;
    return {
      authorization: `Bearer ${apiKey}`,
      // The gateway's name of the header, and ngrok's.
      'service-version': version,
      'ngrok-version': version,
      accept: 'application/json',
      'user-agent': 'device-agent',
      ...(hasBody && { 'content-type': 'application/json' }),
    };
  }
}

/** @throws {TypeError} when it is invalid; the message does not quote it, as it may contain a password */
function checkBaseUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url?.protocol !== 'https:' && url?.protocol !== 'http:')
    throw new TypeError('baseUrl must be an http or https URL');
  if (url.username || url.password) throw new TypeError('baseUrl must have no user name or password: use apiKey');
  if (/[?#]/.test(text)) throw new TypeError('baseUrl must have no query or fragment');
  return url;
}

function filled(path: string, parts: Readonly<Record<string, string | undefined>>): string {
  return path.replaceAll(/\{(\w+)\}/g, (_, name: string) => {
    const value = parts[name];
    // An empty part would address the collection, dots its parent.
    if (!value || value === '.' || value === '..')
      throw new TypeError(`${JSON.stringify(value)} is not a valid ${name}`);
    return encodeURIComponent(value);
  });
}

/**
 * Milliseconds before a retry; null for none. A call that may have changed something is retried only after a 429 or 503 with
 * Retry-After.
 */
function retryDelay({ method }: Operation, error: ManagementError, backoff: number): number | null {
  const { status, retryAfterMs } = error;
  if ((status === 429 || status === 503) && retryAfterMs !== null) {
    // With jitter, so that a fleet does not retry in step.
    return retryAfterMs > LONGEST_WAIT_MS ? null : retryAfterMs + backoff;
  }
  const isTransient = status === null || status === 429 || status >= 500;
  return method === 'GET' && isTransient ? backoff : null;
}

/** @throws {TypeError} when the options are invalid */
function chooseFetch(
  { ca, fetch: own }: { ca?: string | undefined; fetch?: Fetch | undefined },
  { protocol, hostname }: URL,
): Promise<Fetch> {
  // The global fetch leaves names below localhost to the system's resolver, which knows few.
  if (ca === undefined && !own && isBelowLocalhost(hostname)) return fetchWith({});
  if (ca === undefined) return Promise.resolve(own ?? fetch);
  if (own) throw new TypeError('pass ca or fetch, not both');
  // Node accepts any text, and would then trust no CA.
  if (!/-----BEGIN [A-Z0-9 ]*CERTIFICATE-----/.test(ca)) {
    throw new TypeError('ca must be a PEM certificate, not a path');
  }
  return protocol === 'https:' || isBelowLocalhost(hostname) ? fetchWith({ ca }) : Promise.resolve(fetch);
}

/** Node's http client is loaded only when it is needed: other runtimes may have only the global fetch. */
async function fetchWith(options: { ca?: string }): Promise<Fetch> {
  return (await import('./fetch-trusting.ts')).fetchTrusting(options);
}

const UNTRUSTED_HINT = "; pass the gateway's current ca.pem as `ca`, or nothing if a public CA signed the certificate";

/** Where ngrok's cloud has its management API. */
export const CLOUD_API = 'https://api.ngrok.com';

const ErrorBody = z.object({
  error_code: z.string().nullish(),
  msg: z.string().nullish(),
  details: z.record(z.string(), z.string()).nullish().catch(null),
});

/** The error of a call without a response; `name` is for example `GET /bot_users`. */
function noAnswer(name: string, error: unknown, hint: string): ManagementError {
  if (error instanceof DeadlineExceeded) return new ManagementError(error.message, { status: null, code: TIMEOUT });
  // Node's fetch throws a TypeError "fetch failed" with the reason in its cause. After attempts at several addresses, the
  // cause has a code but no message.
  const reason = error instanceof TypeError && error.cause !== undefined ? error.cause : error;
  const why = messageOf(reason) || String((reason as { code?: unknown }).code);
  const text = `${name}: API unreachable: ${why}${hint}`;
  return new ManagementError(text, { status: null, code: UNREACHABLE, cause: error });
}

/** Whether a connection failed because an unknown CA has signed the server's certificate. */
export function isUntrusted(error: unknown): boolean {
  // The error of Node's fetch has it as its cause.
  const reason = error instanceof Error ? (error.cause ?? error) : error;
  return ['SELF_SIGNED_CERT_IN_CHAIN', 'UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY'].some(
    (code) => hasErrno(reason, code),
  );
}

/** The response's JSON; undefined for a 204. @throws {ManagementError} when the response is an error or not JSON */
function readAnswer(name: string, answer: FetchAnswer, text: string): unknown {
  if (answer.status === 204) return undefined;
  const isSuccess = answer.status >= 200 && answer.status < 300;
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (cause) {
    if (isSuccess) throw unreadable(name, answer.status, 'the response is not JSON', cause);
  }
  if (isSuccess) return json;
  throw apiError(name, answer, json);
}

/** The error of a successful response that does not match the operation. */
export function unreadable(name: string, status: number, why: string, cause?: unknown): ManagementError {
  return new ManagementError(`${name}: ${why}`, { status, code: UNREADABLE_ANSWER, cause });
}

function apiError(name: string, answer: FetchAnswer, json: unknown): ManagementError {
  const { data } = ErrorBody.safeParse(json);
  const details = data?.details ?? {};
  const code = data?.error_code ?? null;
  const isRedirect = answer.status >= 300 && answer.status < 400;
  const msg = isRedirect
    ? `redirected to ${answer.headers.get('location') ?? 'an unknown URL'}; set that as the base URL`
    : (data?.msg ?? `the API responded with status ${answer.status}`);
  return new ManagementError(`${name}: ${msg}${code ? ` (${code})` : ''}`, {
    status: answer.status,
    code,
    details,
    operationId: details.operation_id ?? answer.headers.get('ngrok-operation-id'),
    retryAfterMs: parseRetryAfter(answer.headers.get('retry-after'), answer.headers.get('date')),
  });
}
