import type { Duplex } from 'node:stream';
import { proxyHeader } from '../../../lib/network/proxy-protocol.ts';
import { PolicyFailure } from '../../../traffic-policy/policy-errors.ts';
import type { OutboundRequest, OutboundResponse } from '../../../traffic-policy/public-request.ts';
import type { ForwardFailure, RequestOutcome } from '../../../traffic-policy/steps.ts';
import type { EdgeContext } from '../../context/gateway-context.ts';
import { placeOf } from '../../endpoints/endpoint-address.ts';
import type {
  ClientInfo,
  EndpointDirectory,
  GatewayEndpoint,
  InternalLookupFor,
} from '../../endpoints/online-endpoint.ts';
import type { ProbeOutcome } from '../../endpoints/probe-outcome.ts';
import {
  type Admission,
  forwardError,
  internalAddress,
  internalTarget,
  MAX_FORWARDS,
  TARGET_AWAY,
  TARGET_OFFLINE,
  TOO_MANY_FORWARDS,
} from '../connections/connect-phase.ts';
import { noteDeniedRequest } from '../connections/denials.ts';
import { OpenConnections } from '../connections/open-connections.ts';
import type { WaitingClients } from '../connections/waiting-clients.ts';
import type { ClientRequest, ClientResponse, Upgrade } from '../http/client-message.ts';
import { endpointRemoved } from '../http/edge-errors.ts';
import { answerError, resetConnection } from '../http/error-response.ts';
import { Http2UpstreamPool } from '../upstreams/http2-upstream.ts';
import type { UpstreamLimits, UpstreamLinks } from '../upstreams/upstream-link.ts';
import { UpstreamPool } from '../upstreams/upstream-pool.ts';
import { EdgeRequest, type RequestContext } from './edge-request.ts';
import { examine } from './examination.ts';
import { Exchange, type ExchangeParts } from './exchange.ts';
import { InternalRequest, InternalResponse } from './internal-request.ts';
import { answerByPolicy, answerPolicyError } from './policy-outcome.ts';
import { isForwarded, UpgradeExchange } from './upgrade.ts';
import { convertWebSocket, rejectPlainRequest } from './websocket-tcp.ts';

const SWITCHING_PROTOCOLS = 101;
/** Of a request that gets no response. */
const NO_STATUS = 0;
/** Further members of a pool that a request is sent to: each may take as long as an agent waits for its upstream. */
const MAX_MEMBERS = 3;

type Forward = Extract<RequestOutcome, { kind: 'forward' }>;

interface Upstream {
  pool: UpstreamLinks;
  upgraded: Set<Duplex>;
}

/** Takes clients' requests through the policies of their endpoints, and to the upstreams. */
export class HttpProxy {
  readonly #upstreams = new Map<GatewayEndpoint, Upstream>();
  /** Endpoints that have gone offline, for requests whose policy was still running. */
  readonly #removed = new WeakSet<GatewayEndpoint>();
  readonly #openConnections = new OpenConnections();

  /** Members of pools that could not serve a request. */
  readonly #tried = new WeakMap<ClientRequest, Set<GatewayEndpoint>>();
  readonly #requests: RequestContext;

  constructor(
    private readonly context: EdgeContext,
    private readonly options: {
      limits: UpstreamLimits;
      /** Finds internal endpoints for the requests of a client. */
      internal: InternalLookupFor;
      /** Names of the gateway's services, some of them known later. */
      ownNames: Iterable<string>;
      /** Called with what is wrong with an upstream's response, which is no HTTP. */
      onMalformedResponse(endpoint: GatewayEndpoint, problem: string): void;
      waiting: WaitingClients;
      /** Takes a request to another endpoint than the one that it was routed to; null: its policy rejects the connection. */
      admit(req: ClientRequest, endpoint: GatewayEndpoint): Admission | null;
      /** See {@link RequestContext}; left out: all requests are for hosts. */
      namedPort?: RequestContext['namedPort'];
      onFailure(req: ClientRequest, res: ClientResponse, error: unknown): void;
      /** Serves a request again whose endpoint has lost its agent; false: it gets its error. */
      serveAgain(req: ClientRequest, res: ClientResponse, endpoint: GatewayEndpoint): boolean;
      /** Serves a request at another gateway, as its agent here does not answer; false: it waits on. */
      serveElsewhere(req: ClientRequest, res: ClientResponse, endpoint: GatewayEndpoint): boolean;
    },
  ) {
    const { ownNames, namedPort = () => undefined } = options;
    this.#requests = { ask: (from, outbound, signal) => this.#ask(from, outbound, signal), ownNames, namedPort };
  }

  handle(req: ClientRequest, res: ClientResponse, admission: Admission): void {
    this.#process(new EdgeRequest(req, res, admission, this.#requests));
  }

  /** What a client would get, found out by a request that is no client's. */
  examine(req: ClientRequest, res: ClientResponse, admission: Admission): Promise<ProbeOutcome> {
    const request = new EdgeRequest(req, res, { ...admission, isProbe: true }, this.#requests);
    return examine(request, (url) => internalTarget(url, this.options.internal(req.socket)));
  }

  /** Sends a request of a policy to an internal endpoint, whose own policy runs as well. */
  #ask(from: EdgeRequest, outbound: OutboundRequest, signal: AbortSignal): Promise<OutboundResponse> {
    const endpoint = internalTarget(outbound.url.origin, this.options.internal(from.req.socket));
    if (!endpoint) return Promise.reject(new PolicyFailure(TARGET_OFFLINE.code, TARGET_OFFLINE.message));
    const req = new InternalRequest(outbound);
    const res = new InternalResponse(outbound);
    req.socket.once('close', () => res.destroy());
    const admission = { endpoint, connection: from.connection.forNextPolicy() };
    this.#process(new EdgeRequest(req, res, admission, this.#requests).countWith(from));
    return res.whole(signal);
  }

  /** Ends a request that an endpoint's policy has forwarded when that endpoint goes offline. */
  trackForwarded(through: GatewayEndpoint, req: ClientRequest, res: ClientResponse): void {
    // After an upgrade, there is no response to end.
    const isUpgrade = req.upgrade !== null;
    this.#openConnections.add([through], isUpgrade ? req.socket : res, () =>
      isUpgrade ? resetConnection(req.socket) : res.destroy(),
    );
  }

  #process(request: EdgeRequest): void {
    request.endpoint.traffic.countRequest();
    const outcome = request.endpoint.policy.onHttpRequest?.(request);
    if (outcome instanceof Promise) this.#awaitOutcome(outcome, request);
    else this.#applyOutcome(outcome, request);
  }

  #awaitOutcome(outcome: Promise<RequestOutcome | undefined>, request: EdgeRequest): void {
    outcome.then((settled) => this.#applyLate(settled, request)).catch((error: unknown) => this.#fail(request, error));
  }

  /** Applies an outcome, unless the client has left or the endpoint is offline by now. */
  #applyLate(outcome: RequestOutcome | undefined, request: EdgeRequest): void {
    const { req, res, endpoint, body } = request;
    if (!res.destroyed && !this.#removed.has(endpoint)) {
      this.#applyOutcome(outcome, request);
      return;
    }
    body?.stop();
    answerError(req, res, endpointRemoved());
  }

  #fail({ req, res, body }: EdgeRequest, error: unknown): void {
    body?.stop();
    this.options.onFailure(req, res, error);
  }

  #applyOutcome(outcome: RequestOutcome | undefined, request: EdgeRequest): void {
    if (outcome === undefined) this.#sendUpstream(request);
    else if (outcome.kind === 'forward') this.#forwardInternally(outcome, request);
    else this.#answer(outcome, request);
  }

  #answer(outcome: Exclude<RequestOutcome, Forward>, request: EdgeRequest): void {
    request.body?.stop();
    if (outcome.kind === 'close') {
      request.refuse();
      request.responded(NO_STATUS);
      noteDeniedRequest(this.context, request.endpoint, request.req, null);
      request.watch?.closed();
      resetConnection(request.req.socket);
    } else {
      answerByPolicy(request, outcome, this.context)?.catch((error: unknown) =>
        this.options.onFailure(request.req, request.res, error),
      );
    }
  }

  #forwardInternally(outcome: Forward, request: EdgeRequest): void {
    const target = internalTarget(outcome.url, this.options.internal(request.req.socket));
    if (!target) this.#forwardNowhere(outcome, request);
    else if (request.forwards >= MAX_FORWARDS) this.#resume(outcome, TOO_MANY_FORWARDS, request);
    else {
      const onFailure = (failure: ForwardFailure) => {
        // A body that has begun to leave cannot be sent again.
        const forward = request.body === null ? outcome : { ...outcome, resume: null };
        this.#resume(forward, failure, request);
      };
      this.trackForwarded(request.endpoint, request.req, request.res);
      request.watch?.forwarded();
      this.#process(request.forwardedTo(target, onFailure));
    }
  }

  /** Waits for the agent of the target if it is expected back, unless the policy has an answer of its own. */
  #forwardNowhere(outcome: Forward, request: EdgeRequest): void {
    const { req, res } = request;
    const { waiting } = this.options;
    const { protocol: proto, host, port } = internalAddress(outcome.url);
    const lost =
      outcome.resume === null
        ? this.context.endpoints.lost.at(placeOf({ proto, host, port, internal: true }))
        : undefined;
    if (lost === undefined || waiting.hasWaited(req)) {
      this.#resume(outcome, lost === undefined ? TARGET_OFFLINE : TARGET_AWAY, request);
      return;
    }
    waiting.noteWaited(req);
    waiting
      .wait(lost, req.socket.remoteAddress, (leave) => res.once('close', leave))
      .then(() => this.#applyLate(outcome, request))
      .catch((error: unknown) => this.#fail(request, error));
  }

  /** Continues as the action says when a request could not be forwarded. */
  #resume(outcome: Forward, failure: ForwardFailure, request: EdgeRequest): void {
    if (outcome.resume === null) {
      this.context.counters.upstreamFailures += 1;
      request.fail();
      request.endpoint.traffic.countError();
      request.body?.stop();
      answerPolicyError(request.req, request.res, forwardError(failure));
      return;
    }
    const resumed = outcome.resume(failure);
    if (resumed instanceof Promise) this.#awaitOutcome(resumed, request);
    else this.#applyOutcome(resumed, request);
  }

  #sendUpstream(request: EdgeRequest): void {
    const { endpoint } = request;
    const { upgrade } = request.req;
    if (endpoint.websocketTcp && upgrade === null) return void rejectPlainRequest(request);
    const { pool, upgraded } = this.#upstreamOf(endpoint);
    if (endpoint.pooled) request.body?.keepSent();
    const { onMalformedResponse } = this.options;
    const onUnreachable = this.#onUnreachable;
    const parts = {
      request,
      pool,
      from: clientOf(request),
      context: this.context,
      onMalformedResponse,
      onUnreachable,
      onLost: this.#onLost,
      onStalled: this.#onStalled,
    };
    if (upgrade === null) new Exchange(parts).start();
    else this.#upgrade(parts, upgrade, upgraded);
  }

  /** Nothing of the request has reached the upstream. A body that is not kept is gone. */
  readonly #onUnreachable = (request: EdgeRequest): boolean => {
    const { req, res, endpoint, outer } = request;
    endpoint.rest?.();
    const next = this.#nextMember(request);
    if (next === undefined || request.body?.isKept === false || res.destroyed) return false;
    if (outer !== null && request.onFailure !== null) {
      request.body?.rewind();
      this.#process(outer.forwardedTo(next, request.onFailure));
      return true;
    }
    const admission = next.internal ? null : this.options.admit(req, next);
    if (admission === null) return false;
    request.body?.rewind();
    this.#process(request.forMember(admission));
    return true;
  };

  /** What policies have forwarded ends with the endpoints on its way. */
  readonly #onLost = ({ req, res, endpoint, outer }: EdgeRequest): boolean =>
    outer === null && this.#removed.has(endpoint) && !res.destroyed && this.options.serveAgain(req, res, endpoint);

  readonly #onStalled = (request: EdgeRequest): boolean => {
    const { req, res, endpoint, outer } = request;
    if (outer !== null || res.destroyed) return false;
    const next = this.#nextMember(request);
    const admission = next && !next.isStalled && !next.internal ? this.options.admit(req, next) : null;
    if (admission === null) return this.options.serveElsewhere(req, res, endpoint);
    this.#process(request.forMember(admission));
    return true;
  };

  /** The next member of a pool for a request that this one cannot serve. */
  #nextMember({ req, endpoint }: EdgeRequest): ReturnType<EndpointDirectory['another']> {
    const tried = this.#tried.get(req) ?? new Set();
    this.#tried.set(req, tried.add(endpoint));
    return tried.size > MAX_MEMBERS ? undefined : this.context.endpoints.another(endpoint, tried);
  }

  #upgrade(parts: ExchangeParts, upgrade: Upgrade, upgraded: Set<Duplex>): void {
    const { request, context } = parts;
    const { endpoint } = request;
    const onConnected = (client: Duplex, stream: Duplex) => {
      context.counters.responded(SWITCHING_PROTOCOLS, request.req.socket);
      request.responded(SWITCHING_PROTOCOLS);
      for (const side of [client, stream]) keepWhileOpen(upgraded, side);
    };
    if (endpoint.websocketTcp) convertWebSocket(request, { upgrade, from: parts.from, onConnected, context });
    // HTTP/2 has no upgrades.
    else if (endpoint.http2Upstream || !isForwarded(upgrade)) new Exchange(parts).start();
    else new UpgradeExchange(parts, upgrade, onConnected).start();
  }

  retire(endpoint: GatewayEndpoint): void {
    this.#upstreams.get(endpoint)?.pool.retire();
  }

  remove(endpoint: GatewayEndpoint): void {
    this.#removed.add(endpoint);
    this.#openConnections.remove(endpoint);
    const upstream = this.#upstreams.get(endpoint);
    if (!upstream) return;
    this.#upstreams.delete(endpoint);
    upstream.pool.destroy(endpointRemoved());
    for (const side of upstream.upgraded) side.destroy();
  }

  close(): void {
    for (const endpoint of [...this.#upstreams.keys()]) this.remove(endpoint);
  }

  #upstreamOf(endpoint: GatewayEndpoint): Upstream {
    let upstream = this.#upstreams.get(endpoint);
    if (!upstream) {
      upstream = { pool: poolOf(endpoint, this.options.limits), upgraded: new Set() };
      this.#upstreams.set(endpoint, upstream);
    }
    return upstream;
  }
}

/** A function of its own: what it leaves behind must not keep the request for as long as the connection. */
function keepWhileOpen(all: Set<Duplex>, one: Duplex): void {
  all.add(one);
  one.once('close', () => all.delete(one));
}

function poolOf(endpoint: GatewayEndpoint, limits: UpstreamLimits): UpstreamLinks {
  return endpoint.http2Upstream ? new Http2UpstreamPool(endpoint, limits) : new UpstreamPool(endpoint, limits);
}

function clientOf({ req, connection, endpoint: { protocol, proxyProtocol } }: EdgeRequest): ClientInfo {
  const from = { address: connection.client, connection: req.socket, protocol };
  return proxyProtocol === 0 ? from : { ...from, proxyHeader: proxyHeader(proxyProtocol, connection) };
}
