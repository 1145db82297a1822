import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { RequestOutcome } from '../../traffic-policy/steps.ts';
import type { ClientInfo, GatewayEndpoint } from '../endpoint.ts';
import { addressOf, hostPort } from './client-connection.ts';
import type { ClientConnections } from './client-connections.ts';
import { cut } from './cut.ts';
import { endpointRemoved } from './edge-errors.ts';
import { EdgeRequest } from './edge-request.ts';
import { answerError } from './error-answer.ts';
import { Exchange } from './exchange.ts';
import { answerByPolicy, FORWARD_FAILED, INTERNAL_TARGET_OFFLINE } from './policy-outcome.ts';
import { proxyHeader } from './proxy-protocol.ts';
import { UpgradeExchange } from './upgrade.ts';
import type { UpstreamLimits } from './upstream-connection.ts';
import { UpstreamPool } from './upstream-pool.ts';
import { convertWebSocket, refusePlainRequest } from './websocket-tcp.ts';

/** What belongs to one endpoint and ends with it. */
interface Upstream {
  pool: UpstreamPool;
  upgraded: Set<Duplex>;
}

export interface HttpProxyOptions {
  limits: UpstreamLimits;
  connections: ClientConnections;
  /** Receives requests on which the gateway itself failed; they are still to be answered. */
  onFailure(req: IncomingMessage, res: ServerResponse, error: unknown): void;
}

/** Takes requests of the public to the endpoints they are meant for, through their policies. */
export class HttpProxy {
  readonly #options: HttpProxyOptions;
  readonly #upstreams = new Map<GatewayEndpoint, Upstream>();
  /** Endpoints that went offline, for requests that were waiting meanwhile. */
  readonly #removed = new WeakSet<GatewayEndpoint>();

  constructor(options: HttpProxyOptions) {
    this.#options = options;
  }

  /** Answers one request. */
  handle(req: IncomingMessage, res: ServerResponse, endpoint: GatewayEndpoint): void {
    this.#take(new EdgeRequest(req, res, endpoint, this.#options.connections), null);
  }

  /**
   * Answers a request for another protocol.
   *
   * @param res made by responseOn
   * @param early what the client sent after the request already
   */
  handleUpgrade(req: IncomingMessage, res: ServerResponse, early: Buffer, endpoint: GatewayEndpoint): void {
    this.#take(new EdgeRequest(req, res, endpoint, this.#options.connections), early);
  }

  #take(request: EdgeRequest, early: Buffer | null): void {
    const outcome = request.endpoint.policy.onHttpRequest?.(request);
    if (outcome instanceof Promise) this.#await(outcome, request, early);
    else this.#carryOut(outcome, request, early);
  }

  #await(outcome: Promise<RequestOutcome | undefined>, request: EdgeRequest, early: Buffer | null): void {
    const { req, res, endpoint } = request;
    outcome
      .then((settled) => {
        if (res.destroyed) return;
        if (this.#removed.has(endpoint)) answerError(req, res, endpointRemoved());
        else this.#carryOut(settled, request, early);
      })
      .catch((error: unknown) => this.#options.onFailure(req, res, error));
  }

  #carryOut(outcome: RequestOutcome | undefined, request: EdgeRequest, early: Buffer | null): void {
    if (outcome === undefined) {
      this.#forward(request, early);
      return;
    }
    const { req, res, endpoint } = request;
    if (outcome.kind === 'forward' && outcome.resume) {
      const resumed = outcome.resume(INTERNAL_TARGET_OFFLINE);
      if (resumed instanceof Promise) this.#await(resumed, request, early);
      else this.#carryOut(resumed, request, early);
      return;
    }
    request.body?.stop();
    if (outcome.kind === 'close') cut(req.socket);
    else answerByPolicy(req, res, outcome.kind === 'forward' ? FORWARD_FAILED : outcome, request, endpoint);
  }

  #forward(request: EdgeRequest, early: Buffer | null): void {
    const { req, res, body, endpoint } = request;
    request.invite();
    const { pool, upgraded } = this.#upstreamOf(endpoint);
    const parts = { req, res, request, body, policy: endpoint.policy, pool, from: clientOf(request) };
    const upgrade = req.headers.upgrade ?? '';
    const onJoined = (client: Duplex, stream: Duplex) => {
      for (const side of [client, stream]) {
        upgraded.add(side);
        side.once('close', () => upgraded.delete(side));
      }
    };
    if (endpoint.websocketTcp) {
      if (early === null) refusePlainRequest(request);
      else convertWebSocket(request, { ...parts, early, onJoined });
      return;
    }
    // HTTP/2 is spoken between neighbours; the upstream is not the client's (RFC 9110, 7.8).
    if (early === null || /^h2c?$/i.test(upgrade)) {
      new Exchange(parts).start();
      return;
    }
    new UpgradeExchange({ ...parts, upgrade }, { early, onJoined }).start();
  }

  /** Cuts everything that an endpoint still carries. */
  remove(endpoint: GatewayEndpoint): void {
    this.#removed.add(endpoint);
    const upstream = this.#upstreams.get(endpoint);
    if (!upstream) return;
    this.#upstreams.delete(endpoint);
    upstream.pool.destroy(endpointRemoved());
    for (const side of upstream.upgraded) side.destroy();
  }

  /** Cuts everything. */
  close(): void {
    for (const endpoint of [...this.#upstreams.keys()]) this.remove(endpoint);
  }

  #upstreamOf(endpoint: GatewayEndpoint): Upstream {
    let upstream = this.#upstreams.get(endpoint);
    if (!upstream) {
      upstream = { pool: new UpstreamPool(endpoint, this.#options.limits), upgraded: new Set() };
      this.#upstreams.set(endpoint, upstream);
    }
    return upstream;
  }
}

function clientOf({ req, endpoint, connection }: EdgeRequest): ClientInfo {
  const { protocol, proxyProtocol } = endpoint;
  const from = { address: hostPort(addressOf(req.socket), req.socket.remotePort ?? 0), protocol };
  return proxyProtocol === 0 ? from : { ...from, proxyHeader: proxyHeader(proxyProtocol, connection) };
}
