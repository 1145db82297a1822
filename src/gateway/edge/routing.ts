import { IncomingMessage, type RequestListener, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { GatewayEndpoint } from '../endpoint.ts';
import { uncounted } from '../tally.ts';
import type { ClientConnections } from './client-connections.ts';
import type { ClientRequest, ClientResponse } from './client-message.ts';
import { cut } from './cut.ts';
import { malformedRequest, misdirected, unknownHost } from './edge-errors.ts';
import { answerError, closeUnlessBodyRead } from './error-answer.ts';
import { hostNameOf } from './host-name.ts';
import type { HttpProxy } from './http-proxy.ts';
import { isMisdirected } from './misdirected.ts';
import type { PublicTlsOptions } from './public-tls.ts';
import { faultOf } from './request-guard.ts';

export interface RoutingOptions extends Pick<PublicTlsOptions, 'endpoints' | 'services' | 'challenges' | 'tally'> {
  clients: Pick<ClientConnections, 'admit'>;
  /** Told of requests that their connection's policy takes on to another endpoint. */
  proxy: Pick<HttpProxy, 'passes'>;
}

export type Scheme = 'http' | 'https';

/** Finds the endpoints that requests are for, and answers those that are for none. */
export class Routing {
  readonly #options: RoutingOptions;
  /** Connections whose framing cannot be trusted: what follows on them may be smuggled. */
  readonly #distrusted = new WeakSet<Socket>();

  constructor(options: RoutingOptions) {
    this.#options = options;
  }

  /** @returns the endpoint that the request is for; null when it has been answered already */
  route(req: ClientRequest, res: ClientResponse, scheme: Scheme): GatewayEndpoint | null {
    if (this.#distrusted.has(req.socket)) return null;
    const fault = faultOf(req);
    if (fault !== null) {
      // In HTTP/2 no request can be taken for a part of another one.
      if (req.httpVersion !== '2.0') this.#distrusted.add(req.socket);
      res.shouldKeepAlive = false;
      answerError(req, res, malformedRequest(fault));
      return null;
    }
    const { endpoints, services, challenges, clients, proxy, tally } = this.#options;
    const host = hostNameOf(req.headers.host ?? '');
    const proof = scheme === 'http' ? challenges?.http.answer(host, req.url ?? '') : undefined;
    if (proof !== undefined) return answerChallenge(res, proof);
    const service = services?.get(host);
    const endpoint = endpoints.lookup(scheme, host);
    if (scheme === 'https' && isMisdirected(req, host, service ? null : endpoint)) {
      answerError(req, res, misdirected(host));
      return null;
    }
    if (service && scheme === 'https') return answerItself(req, res, service);
    if (endpoint) {
      const admitted = clients.admit(req.socket, endpoint);
      if (!admitted) {
        tally.refusedByPolicy += 1;
        cut(req.socket);
      } else if (admitted !== endpoint) proxy.passes(endpoint, req, res);
      return admitted;
    }
    const secure = scheme === 'http' ? endpoints.lookup('https', host) : undefined;
    if (secure) redirect(req, res, host, secure.port);
    else answerError(req, res, unknownHost(host));
    return null;
  }
}

/** RFC 8555, section 8.3. */
function answerChallenge(res: ClientResponse, proof: string): null {
  const length = Buffer.byteLength(proof);
  res.writeHead(200, ['content-type', 'application/octet-stream', 'content-length', String(length)]);
  res.end(proof);
  return null;
}

/** A request to the gateway itself; nothing that it offers begins with an upgrade. */
function answerItself(req: ClientRequest, res: ClientResponse, service: RequestListener): null {
  if (req.headers.upgrade !== undefined) answerError(req, res, malformedRequest('nothing here can be upgraded to'));
  else {
    if (req.headers.expect !== undefined) res.writeContinue();
    if (req instanceof IncomingMessage && res instanceof ServerResponse) service(req, uncounted(res));
  }
  return null;
}

/** Whoever asks over HTTP for an endpoint that is HTTPS alone is sent there. */
function redirect(req: ClientRequest, res: ClientResponse, host: string, port: number): void {
  const repeatable = req.method === 'GET' || req.method === 'HEAD';
  closeUnlessBodyRead(req, res);
  const location = `https://${host}${port === 443 ? '' : `:${port}`}${req.url}`;
  res.writeHead(repeatable ? 302 : 308, ['location', location, 'content-length', '0']);
  res.end();
}
