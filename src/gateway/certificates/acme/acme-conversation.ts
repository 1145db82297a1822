import type { IncomingHttpHeaders } from 'node:http';
import { type Agent, request } from 'node:https';
import { messageOf } from '../../../lib/errors.ts';
import { readResponse } from '../../../lib/http/read-response.ts';
import { parseRetryAfter } from '../../../lib/http/retry-after.ts';
import { InspectingAgent } from '../../../lib/tls/client-handshake.ts';
import { VERSION } from '../../../packaged.ts';
import { IssueError } from '../issuing/certificate-issuer.ts';

/** The slowest request is a finalization, which takes a CA seconds. */
const REQUEST_MS = 30_000;
/** A certificate with its chain takes about 10 kB. */
const MAX_BODY_BYTES = 1024 * 1024;

export interface CaResponse {
  readonly status: number;
  /** By lower-case names; several of one name are joined with commas. */
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
}

/** One talk with a certificate authority: its requests have a deadline, and obey the signal. */
export class Conversation {
  /** `Retry-After` of the last response, in seconds; null without one. */
  retryAfter: number | null = null;
  /** The fault of this machine's clock, by the last response; null: none. */
  clock: string | null = null;
  /** One connection for each request: between two polls, the server may close a connection at any time. */
  readonly #agent: Agent;

  /** @param trust PEM of the CAs of the server's certificate; null: the public ones */
  constructor(
    trust: string | null,
    readonly signal: AbortSignal,
  ) {
    this.#agent = new InspectingAgent({ owner: 'acme' }, { keepAlive: false, ...(trust !== null && { ca: trust }) });
  }

  /** @throws {AcmeProblem} for an error status @throws {CaUnreachable} without a response */
  async send(url: string, method: 'GET' | 'HEAD' | 'POST', body: string | null): Promise<CaResponse> {
    const response = await this.#exchange(url, method, body);
    const { status, headers, text } = response;
    const retryAfterMs = parseRetryAfter(headers['retry-after'], headers.date);
    this.clock = clockProblem(headers.date, Date.now());
    this.retryAfter = retryAfterMs === null ? null : Math.ceil(retryAfterMs / 1000);
    if (status < 400) return response;
    throw new AcmeProblem(parseProblem(text), status, this.retryAfter, headers['replay-nonce'] ?? null);
  }

  async #exchange(url: string, method: 'GET' | 'HEAD' | 'POST', body: string | null): Promise<CaResponse> {
    const { signal } = this;
    const deadline = AbortSignal.timeout(REQUEST_MS);
    const headers = { 'User-Agent': `device-agent/${VERSION}`, 'Content-Type': 'application/jose+json' };
    try {
      const either = AbortSignal.any([signal, deadline]);
      const call = request(url, { method, headers, agent: this.#agent, signal: either }).end(body ?? undefined);
      const { head, body: data } = await readResponse(call, { maxBytes: MAX_BODY_BYTES });
      return { status: Number(head.statusCode), headers: singleValues(head.headers), text: data.toString() };
    } catch (cause) {
      signal.throwIfAborted();
      const reason = deadline.aborted ? `no response within ${REQUEST_MS / 1000} s` : messageOf(cause);
      throw new CaUnreachable(`${placeOf(url)}: ${reason}${clockHint(cause, Date.now())}`, { cause });
    }
  }
}

/** A CA can send anything as the URL of a resource. */
function placeOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host : 'the URL that it sent';
}

function singleValues(headers: IncomingHttpHeaders): Record<string, string> {
  const values = Object.entries(headers).map(([name, value]) => [
    name,
    Array.isArray(value) ? value.join(', ') : value,
  ]);
  return Object.fromEntries(values.filter(([, value]) => value !== undefined));
}

/** CAs and the validity of certificates tolerate some minutes. */
const TOLERATED_MS = 5 * 60_000;
const UNITS = [
  ['days', 86_400_000],
  ['hours', 3_600_000],
  ['minutes', 60_000],
] as const;

/** What TLS reports when a certificate's dates do not fit the clock. */
const DATE_ERRORS: readonly unknown[] = ['CERT_NOT_YET_VALID', 'CERT_HAS_EXPIRED'];

/** What is wrong with this machine's clock, by the `Date` header of a CA's response; null when the clocks agree. */
function clockProblem(date: string | undefined, now: number): string | null {
  const skew = now - Date.parse(date ?? '');
  if (!(Math.abs(skew) > TOLERATED_MS)) return null;
  const [unit, ms] = UNITS.find(([, each]) => Math.abs(skew) >= 1.5 * each) ?? UNITS[2];
  const amount = `${Math.round(Math.abs(skew) / ms)} ${unit}`;
  return `The clock of this machine shows ${shown(now)}, ${amount} ${skew > 0 ? 'ahead of' : 'behind'} the certificate authority's; set it.`;
}

/** @returns the clock as a possible cause of a failed TLS handshake; empty for other errors */
function clockHint(error: unknown, now: number): string {
  const code = typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined;
  return DATE_ERRORS.includes(code) ? `; the clock of this machine shows ${shown(now)}, set it if that is wrong` : '';
}

function shown(now: number): string {
  return new Date(now).toISOString();
}

const PREFIX = 'urn:ietf:params:acme:error:';
/** Characters. */
const MAX_DETAIL = 500;

/** A certificate authority's problem document (RFC 7807, RFC 8555, section 6.7). */
export interface ProblemDocument {
  type?: string | undefined;
  detail?: string | undefined;
}

export class AcmeProblem extends Error {
  /** Without the common prefix, for example `rateLimited`; empty without a problem document. */
  readonly type: string;

  /**
   * @param retryAfter seconds; null without `Retry-After`
   * @param nonce for the next request; null without one
   */
  constructor(
    document: ProblemDocument,
    readonly status: number,
    readonly retryAfter: number | null,
    readonly nonce: string | null = null,
  ) {
    super(detailOf(document) || `HTTP status ${status}`);
    this.name = new.target.name;
    this.type = problemType(document);
  }
}

/** Problems that pass, or are those of the account. */
const PASSING = ['', 'badNonce', 'rateLimited', 'accountDoesNotExist', 'userActionRequired'];

/** Whether the CA would refuse the same request again. A page without a problem type may come from a proxy. */
export function isRefusedForGood({ status, type }: AcmeProblem): boolean {
  return status >= 400 && status < 500 && status !== 408 && status !== 429 && !PASSING.includes(type);
}

export class CaUnreachable extends Error {
  override name = 'CaUnreachable';
}

/** A problem's description on one line: it may quote the response of any server. A long one ends after a word. */
export function detailOf({ detail = '' }: ProblemDocument): string {
  const line = detail.replace(/[\s\p{Cc}]+/gu, ' ').trim();
  if (line.length <= MAX_DETAIL) return line;
  const kept = line.slice(0, MAX_DETAIL + 1);
  const end = kept.lastIndexOf(' ');
  // A surrogate pair is not cut in half either.
  const cut = end > MAX_DETAIL / 2 ? kept.slice(0, end) : line.slice(0, MAX_DETAIL).replace(/[\uD800-\uDBFF]$/, '');
  return `${cut} …`;
}

export function problemType({ type = '' }: ProblemDocument): string {
  return type.startsWith(PREFIX) ? type.slice(PREFIX.length) : '';
}

/** Parses a problem document; empty for any other text. */
function parseProblem(text: string): ProblemDocument {
  try {
    const parsed: unknown = JSON.parse(text);
    return isProblem(parsed) ? parsed : {};
  } catch {
    // A proxy's page instead of JSON: the error shows only the status.
    return {};
  }
}

export function isProblem(value: unknown): value is ProblemDocument {
  if (typeof value !== 'object' || value === null) return false;
  const { type, detail } = value as { type?: unknown; detail?: unknown };
  return ['undefined', 'string'].includes(typeof type) && ['undefined', 'string'].includes(typeof detail);
}

/** An order that failed while this machine's clock was wrong, which is probably why. */
export class FailedByClock extends Error {
  constructor(
    readonly clock: string,
    override readonly cause: unknown,
  ) {
    super(clock, { cause });
    this.name = new.target.name;
  }
}

/** Turns the error of an order into the one that the provisioning job shows. */
export function toIssueError(cause: unknown): IssueError {
  if (cause instanceof FailedByClock) {
    const { code, message, retryAfter } = toIssueError(cause.cause);
    return new IssueError(code, `${message.replace(/\.$/, '')}. ${cause.clock}`, { retryAfter, cause: cause.cause });
  }
  if (cause instanceof IssueError) return cause;
  if (cause instanceof CaUnreachable) {
    const message = `The certificate authority is unreachable: ${cause.message}.`;
    return new IssueError('INTERNAL_ERROR', message, { cause });
  }
  if (cause instanceof AcmeProblem) return refused(cause);
  return new IssueError('INTERNAL_ERROR', 'The certificate could not be issued because of an internal error.', {
    cause,
  });
}

function refused(cause: AcmeProblem): IssueError {
  const { type, message, retryAfter } = cause;
  // The CA checks CAA records again, from other networks.
  if (type === 'caa') return new IssueError('DNS_ERROR', `A CAA record forbids the certificate: ${message}`, { cause });
  if (type === 'rateLimited') return rateLimited(cause);
  const text = `The certificate authority refused the request: ${message}`;
  return new IssueError('INTERNAL_ERROR', text, { retryAfter, cause });
}

/** As Let's Encrypt words it, where `Retry-After` is missing. */
const RETRY_TIME = /retry after (\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d) ?(?:UTC|Z)/i;

function rateLimited(cause: AcmeProblem): IssueError {
  const { message } = cause;
  const [, day, time] = RETRY_TIME.exec(message) ?? [];
  const named = day === undefined ? Number.NaN : Math.ceil((Date.parse(`${day}T${time}Z`) - Date.now()) / 1000);
  const retryAfter = cause.retryAfter ?? (named > 0 ? named : null);
  const until =
    retryAfter === null ? '' : ` until ${new Date(Date.now() + retryAfter * 1000).toISOString().slice(0, 19)}Z`;
  const text = `The certificate authority limits the rate of requests${until}: ${message}`;
  return new IssueError('INTERNAL_ERROR', text, { retryAfter, cause });
}
