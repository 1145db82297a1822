import { AsyncLocalStorage } from 'node:async_hooks';
import type { IncomingHttpHeaders } from 'node:http';
import { type Agent, request } from 'node:https';
import { messageOf } from '../../../lib/errors.ts';
import { readResponse } from '../../../lib/http/read-response.ts';
import { parseRetryAfter } from '../../../lib/http/retry-after.ts';
import { InspectingAgent } from '../../../lib/network/client-handshake.ts';
import { VERSION } from '../../../packaged.ts';
import { IssueError } from '../issuing/certificate-issuer.ts';

type AcmeLibrary = typeof import('acme-client');

export interface Conversation {
  readonly acme: AcmeLibrary;
  readonly signal: AbortSignal;
  /** `Retry-After` of the last response, in seconds; null without one. */
  retryAfter: number | null;
  /** What is wrong with this machine's clock, judged by the last response; null when nothing is. */
  clock: string | null;
}

/** The slowest request is a finalization, which takes a CA seconds. */
const REQUEST_MS = 30_000;
/** A certificate with its chain takes about 10 kB. */
const MAX_BODY_BYTES = 1024 * 1024;

/** The conversation of each request: the library's interface cannot pass it on. */
const conversations = new AsyncLocalStorage<Conversation & { agent: Agent }>();

/**
 * Talks to a certificate authority. Requests of the ACME library inside `talk` have a deadline, obey the signal, and reject
 * with {@link AcmeProblem} or {@link CaUnreachable}. @param trust PEM of the CAs of the server's certificate; null: the
 * public ones
 */
export async function converse<T>(
  trust: string | null,
  signal: AbortSignal,
  talk: (conversation: Conversation) => Promise<T>,
): Promise<T> {
  const acme = await loadLibrary();
  // One connection for each request: between two polls, the server may close a connection at any time.
  const agent = new InspectingAgent({ owner: 'acme' }, { keepAlive: false, ...(trust !== null && { ca: trust }) });
  const conversation = { acme, signal, agent, retryAfter: null, clock: null };
  return conversations.run(conversation, () => talk(conversation));
}

/** Loaded with the first order: most processes never need it, and loading is slow. */
async function loadLibrary(): Promise<AcmeLibrary> {
  const acme = await import('acme-client');
  // The library's own transport cannot be aborted, obeys any Retry-After and hides the cause of failures.
  acme.axios.defaults.adapter = async (config) => {
    const method = config.method === 'head' ? 'HEAD' : config.method === 'post' ? 'POST' : 'GET';
    const body = typeof config.data === 'string' ? config.data : null;
    const { status, headers, data } = await send(String(config.url), method, body);
    return { status, statusText: '', headers, data, config };
  };
  return acme;
}

interface CaResponse {
  status: number;
  headers: Record<string, string>;
  data: string;
}

async function send(url: string, method: 'GET' | 'HEAD' | 'POST', body: string | null): Promise<CaResponse> {
  const conversation = conversations.getStore();
  if (!conversation) throw new Error('ACME request outside a conversation');
  const response = await exchange(url, method, body, conversation);
  const retryAfterMs = parseRetryAfter(response.headers['retry-after']);
  conversation.clock = clockProblem(response.headers.date, Date.now());
  conversation.retryAfter = retryAfterMs === null ? null : Math.ceil(retryAfterMs / 1000);
  if (response.status < 400) return response;
  const document = parseProblem(response.data);
  // The library retries with the nonce of this response.
  if (problemType(document) === 'badNonce') return response;
  throw new AcmeProblem(document, response.status, conversation.retryAfter);
}

async function exchange(
  url: string,
  method: 'GET' | 'HEAD' | 'POST',
  body: string | null,
  { signal, agent }: Conversation & { agent: Agent },
): Promise<CaResponse> {
  const deadline = AbortSignal.timeout(REQUEST_MS);
  const headers = { 'User-Agent': `device-agent/${VERSION}`, 'Content-Type': 'application/jose+json' };
  try {
    const either = AbortSignal.any([signal, deadline]);
    const call = request(url, { method, headers, agent, signal: either }).end(body ?? undefined);
    const { head, body: data } = await readResponse(call, { maxBytes: MAX_BODY_BYTES });
    return { status: Number(head.statusCode), headers: singleValues(head.headers), data: data.toString() };
  } catch (cause) {
    signal.throwIfAborted();
    const reason = deadline.aborted ? `no response within ${REQUEST_MS / 1000} s` : messageOf(cause);
    throw new CaUnreachable(`${new URL(url).host}: ${reason}${clockHint(cause, Date.now())}`, { cause });
  }
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
  type?: string;
  detail?: string;
}

export class AcmeProblem extends Error {
  /** Without the common prefix, for example `rateLimited`; empty without a problem document. */
  readonly type: string;

  /** @param retryAfter seconds; null without `Retry-After` */
  constructor(
    document: ProblemDocument,
    readonly status: number,
    readonly retryAfter: number | null,
  ) {
    super(detailOf(document) || `HTTP status ${status}`);
    this.name = new.target.name;
    this.type = problemType(document);
  }
}

class CaUnreachable extends Error {
  override name = 'CaUnreachable';
}

/** A problem's description on one line: it may quote the response of any server. */
export function detailOf({ detail = '' }: ProblemDocument): string {
  return detail
    .replace(/[\s\p{Cc}]+/gu, ' ')
    .trim()
    .slice(0, MAX_DETAIL);
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
  const reason = type === 'rateLimited' ? 'limits the rate of requests' : 'refused the request';
  const text = `The certificate authority ${reason}: ${message}`;
  return new IssueError('INTERNAL_ERROR', text, { retryAfter, cause });
}
