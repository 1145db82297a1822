import { type Agent, type ClientRequest, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import { messageOf } from '../lib/errors.ts';
import { nameAt, valueAt } from '../lib/http/header-fields.ts';
import { readResponse } from '../lib/http/read-response.ts';
import type { Reservation } from '../lib/memory-budget.ts';
import { type Cidr, cidrList, parseAddress } from '../lib/network/ip-address.ts';
import type { HandshakeParties } from '../lib/network/metered-connection.ts';
import { findName } from '../lib/network/name-lookup.ts';
import { OwnAddresses } from '../lib/network/own-addresses.ts';
import { InspectingAgent } from '../lib/tls/client-handshake.ts';

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
  /** On whose behalf it is, and who is charged for reading the response; left out: the server's. */
  readonly parties?: HandshakeParties;
  /** Counts the body of the response as it arrives; omitted: nobody does. */
  readonly held?: Reservation;
  /** Whether the response counts once its head is there, however its body goes on. */
  readonly statusSuffices?: boolean;
}

export interface OutboundResponse {
  readonly status: number;
  /** Flat name, value list. */
  readonly headers: readonly string[];
  readonly body: Buffer;
  /** IP address of who has answered; empty for an internal endpoint. */
  readonly address: string;
}

/**
 * No connection: the name does not resolve, its addresses are not public, or none accepts connections. The message says which.
 * To tell tenants would tell them which names and addresses there are in the networks of the gateway.
 */
export class Unreachable extends Error {
  constructor(message: string, options: ErrorOptions = {}) {
    super(message, options);
    this.name = 'Unreachable';
  }
}

/** Addresses in networks of the gateway, besides {@link own}: policies of tenants must not reach them through it. */
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
const own = new OwnAddresses();

/**
 * Sends a request to the public internet, and follows no redirects.
 *
 * @param allowed networks that are not public, but may be reached
 * @param agent keeps connections for further requests, all of them with the same allowed networks; left out: no connection is kept
 * @throws {ResponseTooLong}
 * @throws {Unreachable}
 * @throws Error when the connection fails later, the response exceeds a limit of {@link readResponse}, or the signal aborts
 */
export async function publicRequest(
  outbound: OutboundRequest,
  signal: AbortSignal,
  allowed: readonly Cidr[] = [],
  agent?: Agent,
): Promise<OutboundResponse> {
  // Names are checked when they are resolved.
  const literal = outbound.url.hostname.replace(/^\[(.*)\]$/, '$1');
  if (isIP(literal)) requireOpen(literal, allowed);
  const { parties = { owner: outbound.url.host } } = outbound;
  const request = requestFor(outbound, signal, allowed, agent ?? new InspectingAgent(parties));
  let isConnected = false;
  request.once('socket', (socket) => {
    isConnected = !socket.connecting;
    // A connection that is kept would collect listeners.
    if (isConnected) return;
    socket.once('connect', () => {
      isConnected = true;
    });
  });
  try {
    const { head, body, address } = await readResponse(request, outbound, parties.charge);
    const { statusCode: status = 0, rawHeaders: headers } = head;
    return { status, headers, body, address };
  } catch (error) {
    throw isConnected || signal.aborted ? error : new Unreachable(messageOf(error), { cause: error });
  }
}

/** Uses Node's own client: another one would take memory in every agent, and few policies need it. */
function requestFor(
  { method, url, headers, body }: OutboundRequest,
  signal: AbortSignal,
  allowed: readonly Cidr[],
  agent: Agent,
): ClientRequest {
  // Without a length, Node would send the body of a DELETE in a way that servers take for another request.
  const length = body === null ? {} : { 'content-length': body.length };
  const isPlain = url.protocol === 'http:';
  const options = {
    method,
    lookup: lookupOf(allowed, signal),
    agent: isPlain && agent instanceof InspectingAgent ? false : agent,
    headers: { ...namedValues(headers), ...length },
    signal,
  };
  const request = (isPlain ? requestHttp : requestHttps)(url, options);
  request.end(body ?? undefined);
  return request;
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
    requireOpen(host, allowed);
    return host;
  }
  return new Promise((resolve, reject) => {
    lookupOf(allowed)(host, { all: false }, (error, address) => {
      if (error) reject(error);
      else resolve(String(address));
    });
  });
}

function lookupOf(allowed: readonly Cidr[], signal?: AbortSignal): LookupFunction {
  return (hostname, options, callback) => {
    const found = findName(hostname, signal).then((addresses) => {
      const open = addresses.filter(({ address }) => isOpen(address, allowed));
      const [first] = open;
      if (!first) throw notPublic(hostname);
      return { first, open };
    });
    found.then(
      ({ first, open }) => (options.all ? callback(null, open) : callback(null, first.address, first.family)),
      (error) => callback(error, '', 0),
    );
  };
}

function requireOpen(address: string, allowed: readonly Cidr[]): void {
  if (!isOpen(address, allowed)) throw notPublic(address);
}

function notPublic(host: string): Unreachable {
  return new Unreachable(`${host} is not on the public internet`);
}

function isOpen(text: string, allowed: readonly Cidr[]): boolean {
  const address = parseAddress(text);
  if (address === null) return false;
  if (allowed.some((range) => range.contains(address))) return true;
  return !NOT_PUBLIC.some((range) => range.contains(address)) && !own.has(address);
}
