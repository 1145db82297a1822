import { AsyncLocalStorage } from 'node:async_hooks';
import { once } from 'node:events';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { Agent, request } from 'node:https';
import { messageOf } from '../../../lib/errors.ts';
import { parseRetryAfter } from '../../../lib/retry-after.ts';
import { VERSION } from '../../../version.ts';
import { AcmeProblem, AuthorityUnreachable, parseProblem, problemType } from './acme-problem.ts';

export type AcmeLibrary = typeof import('acme-client');

/** A series of requests to a certificate authority that end together. */
export interface Conversation {
  readonly acme: AcmeLibrary;
  /** Aborts every request and wait. */
  readonly signal: AbortSignal;
  /** Seconds that the last answer asked to wait before asking again; null when it said nothing. */
  retryAfter: number | null;
}

/** Authorities take seconds for a finalization at worst. */
const REQUEST_MS = 30_000;
/** Certificates with their chains have some 10 kB. */
const MAX_BODY_BYTES = 1024 * 1024;

/** The library's requests find the conversation that they belong to here: its own interface lets nothing through. */
const conversations = new AsyncLocalStorage<Conversation & { agent: Agent }>();

/**
 * Runs a conversation with a certificate authority. Requests of the ACME library inside `talk` have a deadline, obey the
 * signal and reject with {@link AcmeProblem} or {@link AuthorityUnreachable}.
 *
 * @param trust PEM of the CAs to trust for the server's own certificate; null: the public CAs
 */
export async function converse<T>(
  trust: string | null,
  signal: AbortSignal,
  talk: (conversation: Conversation) => Promise<T>,
): Promise<T> {
  const acme = await loadLibrary();
  // One connection for each request: between two polls, the server may close a connection at any time.
  const agent = new Agent({ keepAlive: false, ...(trust !== null && { ca: trust }) });
  const conversation = { acme, signal, agent, retryAfter: null };
  return conversations.run(conversation, () => talk(conversation));
}

/** Loaded at the first order: most processes never need it, and it takes its time. */
async function loadLibrary(): Promise<AcmeLibrary> {
  const acme = await import('acme-client');
  // The library's own transport waits as long as a response demands, cannot be aborted and loses the cause of failures.
  acme.axios.defaults.adapter = async (config) => {
    const method = config.method === 'head' ? 'HEAD' : config.method === 'post' ? 'POST' : 'GET';
    const body = typeof config.data === 'string' ? config.data : null;
    const { status, headers, data } = await send(String(config.url), method, body);
    return { status, statusText: '', headers, data, config };
  };
  return acme;
}

interface AuthorityResponse {
  status: number;
  headers: Record<string, string>;
  data: string;
}

async function send(url: string, method: 'GET' | 'HEAD' | 'POST', body: string | null): Promise<AuthorityResponse> {
  const conversation = conversations.getStore();
  if (!conversation) throw new Error('ACME request outside a conversation');
  const response = await exchange(url, method, body, conversation);
  const retryAfterMs = parseRetryAfter(response.headers['retry-after']);
  conversation.retryAfter = retryAfterMs === null ? null : Math.ceil(retryAfterMs / 1000);
  if (response.status < 400) return response;
  const document = parseProblem(response.data);
  // The library repeats these with the nonce of the response.
  if (problemType(document) === 'badNonce') return response;
  throw new AcmeProblem(document, response.status, conversation.retryAfter);
}

async function exchange(
  url: string,
  method: 'GET' | 'HEAD' | 'POST',
  body: string | null,
  { signal, agent }: Conversation & { agent: Agent },
): Promise<AuthorityResponse> {
  const deadline = AbortSignal.timeout(REQUEST_MS);
  const headers = { 'User-Agent': `device-agent/${VERSION}`, 'Content-Type': 'application/jose+json' };
  try {
    const either = AbortSignal.any([signal, deadline]);
    const call = request(url, { method, headers, agent, signal: either });
    // Reading the response fails as well.
    call.on('error', () => {});
    call.end(body ?? undefined);
    const [response] = (await once(call, 'response')) as [IncomingMessage];
    const data = await readBody(response);
    return { status: Number(response.statusCode), headers: singleValues(response.headers), data };
  } catch (cause) {
    signal.throwIfAborted();
    const reason = deadline.aborted ? `no answer within ${REQUEST_MS / 1000} s` : messageOf(cause);
    throw new AuthorityUnreachable(`${new URL(url).host}: ${reason}`, { cause });
  }
}

async function readBody(body: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of body) {
    size += chunk.length;
    if (size > MAX_BODY_BYTES) throw new Error('the response is too long');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function singleValues(headers: IncomingHttpHeaders): Record<string, string> {
  const values = Object.entries(headers).map(([name, value]) => [
    name,
    Array.isArray(value) ? value.join(', ') : value,
  ]);
  return Object.fromEntries(values.filter(([, value]) => value !== undefined));
}
