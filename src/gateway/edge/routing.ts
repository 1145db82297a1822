import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { isName, nameAt } from '../../lib/http/header-fields.ts';
import { NOTICE_POLICY, noticePage, type PageNotice } from '../../lib/http/notice-page.ts';
import { isOwnPage } from '../../lib/http/origin-check.ts';
import { isAddressOfUrl, withoutBrackets } from '../../lib/network/ip-address.ts';
import type { HttpChallenges } from '../certificates/challenges/challenges.ts';
import type { EdgeContext } from '../context/gateway-context.ts';
import {
  demandsHandshake,
  type GatewayEndpoint,
  type LostAddress,
  type RefusesClient,
} from '../endpoints/online-endpoint.ts';
import type { NamedPort } from '../endpoints/port-names.ts';
import type { ProbeOutcome } from '../endpoints/probe-outcome.ts';
import type { RequestFeed } from '../endpoints/request-feed.ts';
import { type Admission, type ClientConnections, forwardError, TARGET_OFFLINE } from './connections/connect-phase.ts';
import { noteDeniedRequest } from './connections/denials.ts';
import type { WaitingClients } from './connections/waiting-clients.ts';
import type { ClientRequest, ClientResponse } from './http/client-message.ts';
import {
  addressRefused,
  agentAway,
  headersTooLong,
  malformedRequest,
  misdirected,
  tooManyCookies,
  unknownExpectation,
  unknownHost,
} from './http/edge-errors.ts';
import { answerError, closeUnlessBodyRead, resetConnection } from './http/error-response.ts';
import { headerValue, hostNameOf, MAX_HEADER_LINES } from './http/headers.ts';
import type { HttpLimits } from './http/http-limits.ts';
import type { HttpProxy } from './proxy/http-proxy.ts';
import { answerPolicyError } from './proxy/policy-outcome.ts';
import { RequestWatch } from './proxy/request-watch.ts';
import type { Relays } from './relays/relays.ts';

export type Scheme = 'http' | 'https';

export class Routing {
  /** Requests that have been served twice. */
  readonly #repeated = new WeakSet<ClientRequest>();

  constructor(
    private readonly context: EdgeContext,
    private readonly options: {
      /** Names of connections at ports of the gateway's address: their requests name that instead. */
      named: WeakMap<Socket, NamedPort>;
      services: ReadonlyMap<string, unknown>;
      limits: Pick<HttpLimits, 'headerBytes'>;
      challenges: { http: HttpChallenges };
      isRefused: RefusesClient;
      clients: Pick<ClientConnections, 'admit' | 'connectionTo'>;
      proxy: Pick<HttpProxy, 'trackForwarded'>;
      relays: Pick<Relays, 'nodes' | 'isLast' | 'internalOf' | 'endpointFor' | 'isRelayed'> | null;
      waiting: WaitingClients;
      /** Serves a request that has waited for an agent, or has lost it. */
      serve(req: ClientRequest, res: ClientResponse, scheme: Scheme): void;
    },
  ) {}

  /** @returns where the request goes; null when it has been answered already, or waits for its agent */
  route(req: ClientRequest, res: ClientResponse, scheme: Scheme): Admission | null {
    const { headerBytes } = this.options.limits;
    if (req.headBytes > headerBytes) return answerTooLong(req, res, scheme, headerBytes);
    const fault = faultOf(req);
    if (fault !== null) {
      res.shouldKeepAlive = false;
      answerError(req, res, malformedRequest(fault));
      return null;
    }
    const { expect } = req.headers;
    if (expect !== undefined && !/^100-continue$/i.test(expect)) {
      answerError(req, res, unknownExpectation());
      return null;
    }
    const { endpoints } = this.context;
    const { services, challenges, relays } = this.options;
    const host = this.#hostOf(req);
    const proof = scheme === 'http' ? challenges.http.answer(withoutBrackets(host), req.url ?? '') : undefined;
    if (proof !== undefined) return answerChallenge(req, res, proof);
    const internal = relays?.internalOf(req.socket);
    if (internal) {
      const admission = this.#admit(req, res, endpoints.internal(internal.protocol, internal.host, internal.port));
      return admission && { ...admission, isForwarded: true };
    }
    const endpoint = this.#endpointFor(req, scheme, host);
    // The gateway's own services are selected by the name in the handshake.
    if (scheme === 'https' && (services.has(host) || isMisdirected(req, host, endpoint))) {
      answerError(req, res, misdirected(host));
      return null;
    }
    if (endpoint) return this.#admit(req, res, endpoint);
    const secure = scheme === 'http' ? (endpoints.peek('https', host) ?? endpoints.peek('tls', host)) : undefined;
    // The address is the gateway's own.
    const isAddress = scheme === 'http' && isAddressOfUrl(host) && services.has(host);
    if (secure) redirect(req, res, host, secure.port);
    else if (isAddress) redirect(req, res, host, this.context.addresses?.ports.https ?? 443);
    else this.#answerUnserved(req, res, scheme);
    return null;
  }

  /** The endpoint for a request: at another gateway when it is not here, or its agent here is stalled and nobody has passed it on. */
  #endpointFor({ socket }: ClientRequest, scheme: Scheme, host: string): GatewayEndpoint | undefined {
    const { relays } = this.options;
    const here = this.context.endpoints.lookup(scheme, host);
    if (here && !(here.isStalled && relays?.isRelayed(socket) === false)) return here;
    return relays?.endpointFor(socket, scheme, host) ?? here;
  }

  /** The name that a request is for. */
  #hostOf({ socket, headers }: ClientRequest): string {
    return this.options.named.get(socket)?.name ?? hostNameOf(headers.host ?? '');
  }

  /** Where a probe goes; or why a client would get nowhere. */
  probed(req: ClientRequest, scheme: Scheme): Admission | ProbeOutcome {
    const { endpoints } = this.context;
    const host = this.#hostOf(req);
    const endpoint = endpoints.peek(scheme, host);
    if (endpoint === undefined) {
      const isLost = this.#lostAt(scheme, host) !== undefined;
      return { stage: 'session', message: isLost ? 'its agent was lost a moment ago' : 'no agent has it open' };
    }
    // The address of a gateway says nothing of those that clients have.
    if (this.options.isRefused(req.socket)) return NOT_TRIED;
    return this.options.clients.admit(req.socket, endpoint) ?? refusedConnection(endpoint);
  }

  /** Takes a request to another member of the pool that it was routed to; null: that member has demands which it does not meet. */
  admitElsewhere(req: ClientRequest, endpoint: GatewayEndpoint): Admission | null {
    const isMet = !isMisdirected(req, this.#hostOf(req), endpoint);
    const admission = isMet ? this.options.clients.admit(req.socket, endpoint) : null;
    // What its policy forwards would end with an endpoint that nobody follows.
    return admission?.endpoint === endpoint ? admission : null;
  }

  /** @param endpoint undefined: an internal one that has gone offline */
  #admit(req: ClientRequest, res: ClientResponse, endpoint: GatewayEndpoint | undefined): Admission | null {
    const { clients, proxy } = this.options;
    if (endpoint === undefined) {
      answerPolicyError(req, res, forwardError(TARGET_OFFLINE));
      return null;
    }
    if (this.options.isRefused(req.socket)) {
      const refusal = addressRefused();
      endpoint.traffic.countRefusal(undefined, null);
      noteDeniedRequest(this.context, endpoint, req, refusal.status);
      answerError(req, res, refusal);
      return null;
    }
    const admission = clients.admit(req.socket, endpoint);
    if (admission === null) {
      endpoint.traffic.countRefusal(undefined, null);
      noteDeniedRequest(this.context, endpoint, req, null);
      if (endpoint.feed?.admits()) this.#reportClosed(endpoint.feed, req, endpoint);
      resetConnection(req.socket);
    } else if (admission.endpoint !== endpoint) proxy.trackForwarded(endpoint, req, res);
    return admission;
  }

  /** With several gateways, the connection ends: the host may be at another one, or come back there. The next one is passed on. */
  #answerUnserved(req: ClientRequest, res: ClientResponse, scheme: Scheme): void {
    const { relays, isRefused } = this.options;
    const host = this.#hostOf(req);
    const lost = isRefused(req.socket) ? undefined : this.#lostAt(scheme, host);
    if (lost && !this.#hasWaited(req)) {
      void this.#waitFor(lost, req, res, scheme);
      return;
    }
    if (relays) res.shouldKeepAlive = false;
    const nodes = relays?.isLast(req.socket) ? undefined : relays?.nodes;
    const elsewhere = scheme === 'https' ? nodes?.withName(host) : nodes?.withHttpName(host);
    if (elsewhere) answerError(req, res, misdirected(host));
    else answerError(req, res, lost ? agentAway(host) : unknownHost(host));
  }

  /** Clients of plain HTTP are redirected to what is online over TLS only. */
  #lostAt(scheme: Scheme, host: string): LostAddress | undefined {
    const { lost } = this.context.endpoints;
    return (scheme === 'http' ? lost.covering('http', host) : undefined) ?? lost.covering('tls', host);
  }

  /** Each request waits once. */
  #hasWaited(req: ClientRequest): boolean {
    const { waiting } = this.options;
    return waiting.hasWaited(req) || waiting.hasWaited(req.socket);
  }

  /** Serves a request again, once, whose agent was lost before it answered. @returns false when nobody serves it, or has to be waited for */
  serveAgain(req: ClientRequest, res: ClientResponse, { protocol }: GatewayEndpoint): boolean {
    const scheme = protocol === 'http' ? 'http' : 'https';
    const host = this.#hostOf(req);
    if (this.#repeated.has(req) || this.#hasWaited(req)) return false;
    if (!this.context.endpoints.peek(scheme, host) && !this.#lostAt(scheme, host)) return false;
    this.#repeated.add(req);
    this.options.serve(req, res, scheme);
    return true;
  }

  /** Serves a request at another gateway, once, whose policy decides there. @returns false when none can */
  serveElsewhere(req: ClientRequest, res: ClientResponse, endpoint: GatewayEndpoint): boolean {
    const { relays, serve } = this.options;
    // Policies have forwarded the connection to an internal endpoint.
    const isInternal = 'internal' in endpoint && endpoint.internal === true;
    if (isInternal || this.#repeated.has(req) || relays?.isRelayed(req.socket) !== false) return false;
    const scheme = endpoint.protocol === 'http' ? 'http' : 'https';
    if (relays.endpointFor(req.socket, scheme, this.#hostOf(req)) === undefined) return false;
    this.#repeated.add(req);
    serve(req, res, scheme);
    return true;
  }

  async #waitFor(lost: LostAddress, req: ClientRequest, res: ClientResponse, scheme: Scheme): Promise<void> {
    const { waiting, serve } = this.options;
    waiting.noteWaited(req);
    await waiting.wait(lost, req.socket.remoteAddress, (leave) => res.once('close', leave));
    if (!res.destroyed) serve(req, res, scheme);
  }

  #reportClosed(feed: RequestFeed, req: ClientRequest, endpoint: GatewayEndpoint): void {
    const { method = 'GET', url: target = '/', rawHeaders: headers, socket } = req;
    const connection = this.options.clients.connectionTo(endpoint, socket);
    new RequestWatch(feed, { method, target, headers }, connection).closed();
  }
}

/** An endpoint that is for some addresses alone. */
const NOT_TRIED: ProbeOutcome = { stage: null, message: 'an IP restriction does not let the gateway itself in' };

function refusedConnection({ policy }: GatewayEndpoint): ProbeOutcome {
  if (policy.access.includes('addresses'))
    return { stage: null, message: 'its policy does not let the gateway itself in' };
  return { stage: 'policy', message: 'the policy closes the connection' };
}

/** Where the button of the page about too many cookies posts to. */
const CLEAR_COOKIES = '/ngrok/clear-cookies';

/**
 * Any page can set cookies for all names below its domain, until browsers can open none of them (a cookie bomb). Only browsers can
 * delete cookies whose paths and domains nobody knows, and they delete those of the whole site: people are asked first.
 */
function answerTooLong(req: ClientRequest, res: ClientResponse, scheme: Scheme, headerBytes: number): null {
  res.shouldKeepAlive = false;
  const cookies = headerValue(req.rawHeaders, 'cookie')?.length ?? 0;
  if (req.headBytes - cookies > headerBytes) answerError(req, res, headersTooLong());
  // Browsers heed the header over TLS only.
  else if (scheme === 'http') answerError(req, res, tooManyCookies(cookies));
  else if (isClearing(req)) answerCleared(res);
  else
    answerError(req, res, tooManyCookies(cookies), NOTICE_POLICY, { button: 'Delete cookies', action: CLEAR_COOKIES });
  return null;
}

function answerCleared(res: ClientResponse): void {
  const body = Buffer.from(noticePage(COOKIES_DELETED));
  const headers = ['content-type', 'text/html; charset=utf-8', 'content-length', String(body.length)];
  res.writeHead(200, [...headers, 'clear-site-data', '"cookies"', 'cache-control', 'no-store']);
  res.end(body);
}

function isClearing({ method = '', url, headers, rawHeaders }: ClientRequest): boolean {
  const [origin, site] = ['origin', 'sec-fetch-site'].map((name) => headerValue(rawHeaders, name));
  if (method !== 'POST' || url !== CLEAR_COOKIES) return false;
  return isOwnPage({ method, headers: { host: headers.host, origin, 'sec-fetch-site': site } });
}

const COOKIES_DELETED: PageNotice = {
  title: 'Cookies deleted',
  text: 'Sign in again where you need to. If the page about cookies returns, delete them in the settings of the browser.',
  link: { href: '/', text: 'Continue' },
};

function answerChallenge(req: ClientRequest, res: ClientResponse, proof: string): null {
  closeUnlessBodyRead(req, res);
  const length = Buffer.byteLength(proof);
  res.writeHead(200, ['content-type', 'application/octet-stream', 'content-length', String(length)]);
  res.end(Buffer.from(proof));
  return null;
}

function redirect(req: ClientRequest, res: ClientResponse, host: string, port: number): void {
  const repeatable = req.method === 'GET' || req.method === 'HEAD';
  closeUnlessBodyRead(req, res);
  const location = `https://${host}${port === 443 ? '' : `:${port}`}${req.url}`;
  res.writeHead(repeatable ? 302 : 308, ['location', location, 'content-length', '0']);
  res.end();
}

/**
 * Whether a request's TLS connection must not serve its host (RFC 9110, 15.5.20). Browsers send requests for several hosts
 * over one HTTP/2 connection when its certificate covers them (RFC 9113, 9.1.1). But an endpoint's demands on handshakes
 * apply only to connections that named it.
 */
function isMisdirected(
  { socket, httpVersion }: ClientRequest,
  host: string,
  endpoint: GatewayEndpoint | undefined,
): boolean {
  const isShared = httpVersion === '2.0';
  if (!isShared && !(endpoint && demandsHandshake(endpoint))) return false;
  if (isNamed(socket, host)) return false;
  if (endpoint && (demandsHandshake(endpoint) || endpoint.policy.onTcpConnect !== null)) return true;
  return isShared && !isCovered(socket, host);
}

function isNamed(socket: Socket, host: string): boolean {
  // Node's types declare it for clients only.
  return (socket as Socket & { servername?: string }).servername === host;
}

function isCovered(socket: Socket, host: string): boolean {
  return socket instanceof TLSSocket && socket.getX509Certificate()?.checkHost(host) !== undefined;
}

/** Why a well-formed request must not be proxied; null when it may. */
export function faultOf(req: ClientRequest): string | null {
  const { rawHeaders } = req;
  if (rawHeaders.length > 2 * MAX_HEADER_LINES) return 'too many headers';
  const hosts = countOf(rawHeaders, 'host');
  if (hosts > 1 || (hosts === 0 && req.httpVersion !== '1.0')) return 'exactly one Host header is required';
  if (!HOST.test(req.headers.host ?? '')) return 'malformed Host header';
  // HTTP/1.0 clients may leave it out, and others may leave it empty (RFC 9112, 3.2).
  if (hostNameOf(req.headers.host ?? '') === '') return 'a Host header with a name is required';
  // After CONNECT, the upstream would no longer read HTTP.
  if (req.url?.charCodeAt(0) !== SLASH || req.method === 'CONNECT') return 'the request target must be a path';
  // Only clients use fragments (RFC 9110, 4.1).
  if (req.url.includes('#')) return 'the request target must not contain a fragment';
  return null;
}

/** A name or address, perhaps with a port (RFC 9110, 7.2). */
const HOST = /^(?:\[[0-9a-f:.]+\]|[\w.~%!$&'()*+,;=-]*)(?::\d*)?$/i;
const SLASH = 0x2f;

function countOf(rawHeaders: readonly string[], wanted: string): number {
  let count = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) if (isName(nameAt(rawHeaders, at), wanted)) count++;
  return count;
}
