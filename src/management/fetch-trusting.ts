import { type ClientRequest, type IncomingMessage, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { hostPort } from '../lib/network/ip-address.ts';
import { lookupName } from '../lib/network/loopback-names.ts';
import { connectionFor } from '../lib/network/proxied-connection.ts';
import { NO_PROXIES, type ProxyRules } from '../lib/network/proxy-rules.ts';
import { pinnedProtocols } from '../lib/tls/pinned-chain.ts';
import type { TrustedTime } from '../lib/tls/trusted-time.ts';

/** Options that Node's own fetch does not have. */
export interface FetchOptions {
  /** PEM of the CA to trust instead of the public CAs. */
  ca?: string;
  /** PEM of those of them that a gateway is asked for a chain of; left out: all, if they are few. */
  pinned?: string;
  proxies?: ProxyRules;
  /** Connects here instead of the URL's host, whose certificate it still requires. */
  address?: {
    host: string;
    port: number;
    /** Opens the connection below TLS; left out: as usual. */
    connect?: () => Socket;
  };
  /** Judges certificates whose dates do not fit this machine's clock; left out: nobody does. */
  time?: TrustedTime;
  /** Accepts any certificate. Send no secret, and verify what the response says. */
  isUnverified?: boolean;
  /** The longest body that is read; a longer one fails. */
  maxBytes?: number;
}

/** Far beyond a page of the largest resources: whatever answers must not fill the memory of a small device. */
const MAX_BYTES = 16 * 1024 * 1024;

/**
 * Makes a fetch with Node's http client. Node's own fetch would need an environment variable at the start of the process
 * for either option, or the exact undici that Node was built with.
 */
export function fetchTrusting({ maxBytes = MAX_BYTES, ...options }: FetchOptions): Fetch {
  return (address, { body, ...request }) =>
    new Promise((resolve, reject) => {
      const call = requestTrusting(address, request, options);
      call.on('response', (message) => {
        toAnswer(message, maxBytes).then(resolve, reject);
      });
      call.on('error', reject);
      call.end(body);
    });
}

/** Begins a request of Node's http client; its caller listens to it, and ends it. */
export function requestTrusting(
  address: string,
  { method, headers, signal }: Pick<FetchRequest, 'method' | 'headers' | 'signal'>,
  { ca, pinned = ca, proxies = NO_PROXIES, address: place, isUnverified, time }: Omit<FetchOptions, 'maxBytes'>,
): ClientRequest {
  const url = new URL(address);
  const protocols = pinnedProtocols(pinned);
  const tls = {
    ...(ca !== undefined && { ca }),
    ...(protocols.length > 0 && { ALPNProtocols: protocols }),
    ...(isUnverified && { rejectUnauthorized: false }),
  };
  const at = place ? new URL(`https://${hostPort(place.host, place.port)}`) : url;
  const named = { ...tls, ...(place && { servername: url.hostname }) };
  const connect = place?.connect;
  const createConnection = connect
    ? () => connectTls({ ...named, socket: connect() })
    : connectionFor(at, proxies, { ...named, ...(time && { time }) }, signal);
  const options = {
    method,
    headers: { ...headers, ...(place && { host: url.host }) },
    signal,
    lookup: lookupName,
    ...tls,
    ...(createConnection && { createConnection }),
    // Node's client prefers a URL's hostname to `host`.
    ...(place && { hostname: place.host, port: place.port, servername: url.hostname }),
  };
  return url.protocol === 'https:' ? requestHttps(url, options) : requestHttp(url, options);
}

async function toAnswer(message: IncomingMessage, maxBytes: number): Promise<FetchAnswer> {
  const body = await readText(message, maxBytes);
  const { statusCode: status = 0, headersDistinct: headers } = message;
  return { status, headers: { get: (name) => headers[name]?.join(', ') ?? null }, text: async () => body };
}

async function readText(message: IncomingMessage, maxBytes: number): Promise<string> {
  const pieces: Buffer[] = [];
  let size = 0;
  // Leaving the loop early destroys the connection.
  for await (const piece of message as AsyncIterable<Buffer>) {
    size += piece.length;
    if (size > maxBytes) throw new Error(`the answer is longer than ${maxBytes} bytes`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString();
}

/** An HTTP request. */
export interface FetchRequest {
  method: string;
  headers: Record<string, string>;
  redirect: 'manual';
  /** Aborts the request and the reading of its response. */
  signal: AbortSignal;
  body?: string;
}

/** The members of a response that the client uses. */
export interface FetchAnswer {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  text(): Promise<string>;
}

/** A subset of `fetch` that allows for other implementations, for example undici's with a proxy. */
export type Fetch = (url: string, request: FetchRequest) => Promise<FetchAnswer>;
