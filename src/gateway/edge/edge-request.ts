import type { PolicyConnection, PolicyRequest } from '../../traffic-policy/steps.ts';
import type { GatewayEndpoint } from '../endpoint.ts';
import { addressOf } from './client-connection.ts';
import type { ClientConnections } from './client-connections.ts';
import type { ClientRequest, ClientResponse } from './client-message.ts';
import { requestHeaders } from './headers.ts';
import { RequestBody } from './request-body.ts';
import { hasBody } from './request-guard.ts';

/** A public request on its way through an endpoint's policy; what few policies ask for is made when they do. */
export class EdgeRequest implements PolicyRequest {
  readonly method: string;
  target: string;
  readonly headers: string[];
  readonly req: ClientRequest;
  readonly res: ClientResponse;
  readonly endpoint: GatewayEndpoint;
  readonly body: RequestBody | null;
  readonly #connections: ClientConnections;
  #invited = false;

  constructor(req: ClientRequest, res: ClientResponse, endpoint: GatewayEndpoint, connections: ClientConnections) {
    this.req = req;
    this.res = res;
    this.endpoint = endpoint;
    this.method = req.method ?? 'GET';
    this.target = req.url ?? '/';
    this.headers = requestHeaders(req.rawHeaders, req.headers.connection, {
      address: addressOf(req.socket),
      protocol: endpoint.protocol === 'https' ? 'https' : 'http',
    });
    this.body = hasBody(req) ? new RequestBody(req) : null;
    this.#connections = connections;
  }

  get version(): string {
    return `HTTP/${this.req.httpVersion}`;
  }

  get connection(): PolicyConnection {
    return this.#connections.of(this.req.socket, this.endpoint);
  }

  async readBody(limit: number): Promise<Buffer | null> {
    if (this.body === null) return null;
    this.invite();
    return this.body.read(limit);
  }

  /** Lets the client send its body if it waits for leave: not before it is needed, for refused ones never are. */
  invite(): void {
    if (this.req.headers.expect === undefined || this.#invited) return;
    this.#invited = true;
    this.res.writeContinue();
  }
}
