import { lookup as systemLookup } from 'node:dns';
import { type Agent, type IncomingMessage, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import { nameAt, valueAt } from '../lib/http/header-fields.ts';
import { type Cidr, cidrList, parseAddress } from '../lib/network/ip-address.ts';

/** A request that a policy makes. */
export interface OutboundRequest {
  readonly method: string;
  readonly url: URL;
  /** Flat name, value list. */
  readonly headers: readonly string[];
  /** Null without one. */
  readonly body: Buffer | null;
  /** Bytes that the body of the response may have. */
  readonly maxBytes: number;
}

export interface OutboundResponse {
  readonly status: number;
  /** Flat name, value list. */
  readonly headers: readonly string[];
  readonly body: Buffer;
  /** IP address of who has answered; empty for an internal endpoint. */
  readonly address: string;
}

/** The body of a response is longer than it may be. */
export class ResponseTooLong extends Error {
  constructor(maxBytes: number) {
    super(`the response is longer than ${maxBytes} bytes`);
    this.name = 'ResponseTooLong';
  }
}

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

/**
 * Sends a request to the public internet, and follows no redirects.
 *
 * @param allowed networks that are not public, but may be reached
 * @param agent keeps connections for further requests, all of them with the same allowed networks; false: it keeps no connection
 * @throws {ResponseTooLong}
 * @throws Error when the server is unreachable or not public, or the signal aborts
 */
export async function publicRequest(
  outbound: OutboundRequest,
  signal: AbortSignal,
  allowed: readonly Cidr[] = [],
  agent: Agent | false = false,
): Promise<OutboundResponse> {
  // Names are checked when they are resolved.
  const literal = outbound.url.hostname.replace(/^\[(.*)\]$/, '$1');
  if (isIP(literal) && !isOpen(literal, allowed)) throw new Error(`${literal} is not on the public internet`);
  const response = await ask(outbound, signal, allowed, agent);
  // A connection that is kept no longer belongs to a response that was read.
  const { remoteAddress: address = '' } = response.socket;
  try {
    const body = await collected(response, outbound.maxBytes);
    const { statusCode: status = 0, rawHeaders: headers } = response;
    return { status, headers, body, address };
  } finally {
    response.destroy();
  }
}

async function collected(response: AsyncIterable<Buffer>, maxBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response) {
    chunks.push(chunk);
    size += chunk.length;
    if (size > maxBytes) throw new ResponseTooLong(maxBytes);
  }
  return Buffer.concat(chunks);
}

/** Uses Node's own client: another one would take memory in every agent, and few policies need it. */
function ask(
  { method, url, headers, body }: OutboundRequest,
  signal: AbortSignal,
  allowed: readonly Cidr[],
  agent: Agent | false,
): Promise<IncomingMessage> {
  // Without a length, Node would send the body of a DELETE in a way that servers take for another request.
  const length = body === null ? {} : { 'content-length': body.length };
  const options = {
    method,
    lookup: lookupOf(allowed),
    agent,
    headers: { ...namedValues(headers), ...length },
    signal,
  };
  return new Promise((resolve, reject) => {
    const request = (url.protocol === 'http:' ? requestHttp : requestHttps)(url, options, resolve);
    request.on('error', reject).end(body ?? undefined);
  });
}

/** Values by their names, in lower case. */
export function namedValues(headers: readonly string[]): Record<string, string[]> {
  const named = new Map<string, string[]>();
  for (let at = 0; at < headers.length; at += 2) {
    const name = nameAt(headers, at).toLowerCase();
    named.set(name, [...(named.get(name) ?? []), valueAt(headers, at)]);
  }
  return Object.fromEntries(named);
}

/**
 * Resolves a name, or takes an address as it is.
 *
 * @returns an address on the public internet, or in the allowed networks
 * @throws Error when there is none
 */
export async function publicAddress(host: string, allowed: readonly Cidr[] = []): Promise<string> {
  if (isIP(host)) {
    if (!isOpen(host, allowed)) throw new Error(`${host} is not on the public internet`);
    return host;
  }
  return new Promise((resolve, reject) => {
    lookupOf(allowed)(host, { all: false }, (error, address) => {
      if (error) reject(error);
      else resolve(String(address));
    });
  });
}

function lookupOf(allowed: readonly Cidr[]): LookupFunction {
  return (hostname, options, callback) => {
    systemLookup(hostname, { ...options, all: true }, (error, addresses) => {
      if (error) {
        callback(error, '', 0);
        return;
      }
      const open = addresses.filter(({ address }) => isOpen(address, allowed));
      const [first] = open;
      if (!first) callback(new Error(`${hostname} is not on the public internet`), '', 0);
      else if (options.all) callback(null, open);
      else callback(null, first.address, first.family);
    });
  };
}

function isOpen(text: string, allowed: readonly Cidr[]): boolean {
  const address = parseAddress(text);
  if (address === null) return false;
  return allowed.some((range) => range.contains(address)) || !NOT_PUBLIC.some((range) => range.contains(address));
}
