import type { Cidr } from '../lib/network/ip-address.ts';
import type { HandshakeParties } from '../lib/network/metered-connection.ts';
import { withSignal } from '../lib/time/deadline.ts';
import { namedValues, publicRequest } from './public-request.ts';

const DEADLINE_MS = 5000;

export interface PublicRequest {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** Aborts it. */
  readonly signal?: AbortSignal;
  /** On whose behalf it is; left out: that of the server. */
  readonly parties?: HandshakeParties;
}

export interface PublicResponse {
  readonly status: number;
  /** By their names, in lower case. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Buffer;
}

/**
 * Fetches a document from the public internet, without following redirects.
 *
 * @param allowed as for {@link publicRequest}
 * @param parties on whose behalf it is; left out: that of the server
 * @throws Error when the download fails or takes more than 5 s, or the document is longer than `maxBytes`
 */
export async function fetchDocument(
  url: string,
  maxBytes: number,
  allowed?: readonly Cidr[],
  parties?: HandshakeParties,
): Promise<Buffer> {
  const { status, body } = await requestPublic(url, maxBytes, { ...(parties && { parties }) }, allowed);
  if (status !== 200) throw new Error(`the server responded with status ${status}`);
  return body;
}

/**
 * Sends a request to a server on the public internet. A redirect is a response like any other.
 *
 * @param allowed as for {@link publicRequest}
 * @throws Error when it fails or takes more than 5 s, or the response's body is longer than `maxBytes`
 * @throws the signal's reason when it aborts
 */
export async function requestPublic(
  url: string,
  maxBytes: number,
  { method = 'GET', headers = {}, body, signal: outer, parties }: PublicRequest = {},
  allowed?: readonly Cidr[],
): Promise<PublicResponse> {
  const parsed = new URL(url);
  if (parsed.protocol !== 'https:') throw new Error('the URL must start with https://');
  const request = {
    ...{
      method,
      url: parsed,
      maxBytes,
      body: body === undefined ? null : Buffer.from(body),
    },
    headers: Object.entries({ accept: 'application/json, */*', ...headers }).flat(),
    ...(parties && { parties }),
  };
  const ask = (signal: AbortSignal) => publicRequest(request, signal, allowed);
  const response = await withSignal(ask, 'the request', DEADLINE_MS, outer);
  return { ...response, headers: namedValues(response.headers) };
}
