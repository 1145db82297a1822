import { lookup as systemLookup } from 'node:dns';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import { cidrList } from '../lib/network/cidr.ts';
import { parseAddress } from '../lib/network/ip-address.ts';
import { withDeadline } from '../lib/time/deadline.ts';

const DEADLINE_MS = 5000;

/** Addresses in networks of the gateway: policies of tenants must not reach them through it. */
const NOT_PUBLIC = cidrList([
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '168.63.129.16/32', // Azure's host
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '224.0.0.0/3',
  // Addresses that embed IPv4 addresses: IPv4-compatible, SIIT, NAT64, Teredo and 6to4.
  '::/96',
  '::ffff:0:0:0/96',
  '64:ff9b::/96',
  '64:ff9b:1::/48',
  '2001::/32',
  '2002::/16',
  'fc00::/7',
  'fe80::/10',
  'fec0::/10',
  'ff00::/8',
]);

export interface PublicRequest {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

export interface PublicResponse {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/**
 * Fetches a document from the public internet, without following redirects.
 *
 * @throws Error when the download fails or takes more than 5 s, or the document is longer than `maxBytes`
 */
export async function fetchDocument(url: string, maxBytes: number): Promise<Buffer> {
  const { status, body } = await requestPublic(url, maxBytes);
  if (status !== 200) throw new Error(`the server responded with status ${status}`);
  return body;
}

/**
 * Sends a request to a server on the public internet. A redirect is a response like any other.
 *
 * @throws Error when it fails or takes more than 5 s, or the response's body is longer than `maxBytes`
 */
export async function requestPublic(
  url: string,
  maxBytes: number,
  request: PublicRequest = {},
): Promise<PublicResponse> {
  const { protocol, hostname } = new URL(url);
  if (protocol !== 'https:') throw new Error('the URL must start with https://');
  // Names are checked when they are resolved.
  const literal = hostname.replace(/^\[(.*)\]$/, '$1');
  if (isIP(literal)) requirePublic(literal);
  return withDeadline(exchange(url, maxBytes, request), 'the download', DEADLINE_MS);
}

async function exchange(url: string, maxBytes: number, request: PublicRequest): Promise<PublicResponse> {
  const response = await ask(url, request);
  try {
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of response as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      size += chunk.length;
      if (size > maxBytes) throw new Error(`the document is longer than ${maxBytes} bytes`);
    }
    return { status: response.statusCode ?? 0, headers: response.headers, body: Buffer.concat(chunks) };
  } finally {
    response.destroy();
  }
}

/** Uses Node's own client: another one would take memory in every agent, and few policies need it. */
function ask(url: string, { method = 'GET', headers = {}, body }: PublicRequest): Promise<IncomingMessage> {
  const options = {
    method,
    lookup: publicLookup,
    agent: false,
    headers: { accept: 'application/json, */*', ...headers },
    signal: AbortSignal.timeout(DEADLINE_MS),
  };
  return new Promise((resolve, reject) => {
    request(url, options, resolve).on('error', reject).end(body);
  });
}

const publicLookup: LookupFunction = (hostname, options, callback) => {
  systemLookup(hostname, { ...options, all: true }, (error, addresses) => {
    if (error) {
      callback(error, '', 0);
      return;
    }
    const open = addresses.filter(({ address }) => isPublic(address));
    const [first] = open;
    if (!first) callback(new Error(`${hostname} is not on the public internet`), '', 0);
    else if (options.all) callback(null, open);
    else callback(null, first.address, first.family);
  });
};

function requirePublic(address: string): void {
  if (!isPublic(address)) throw new Error(`${address} is not on the public internet`);
}

function isPublic(text: string): boolean {
  const address = parseAddress(text);
  return address !== null && !NOT_PUBLIC.some((range) => range.contains(address));
}
