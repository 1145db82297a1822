import type { CompiledPolicy } from '../../../traffic-policy/engine.ts';
import type { PolicyRequest } from '../../../traffic-policy/policy-subjects.ts';
import type { ForwardFailure } from '../../../traffic-policy/steps.ts';
import type { GatewayEndpoint } from '../../endpoints/endpoint.ts';
import type { ClientConnections } from '../clients/client-connections.ts';
import type { ClientConnection } from '../connections/client-connection.ts';
import type { ClientRequest, ClientResponse } from '../http/client-message.ts';
import { requestHeaders } from '../http/headers.ts';
import { RequestBody } from './request-body.ts';

const NO_BODY = Buffer.alloc(0);

/** How a request came from one endpoint to another by the action forward-internal. */
interface Forwarding {
  readonly from: EdgeRequest;
  readonly connection: ClientConnection;
  readonly onFailure: (failure: ForwardFailure) => void;
}

/** A public request on its way through an endpoint's policy; what few policies ask for is made when they do. */
export class EdgeRequest implements PolicyRequest {
  readonly method: string;
  target: string;
  readonly headers: string[];
  readonly connection: ClientConnection;
  readonly req: ClientRequest;
  readonly res: ClientResponse;
  readonly endpoint: GatewayEndpoint;
  readonly body: RequestBody | null;
  /** What has a say on the response. */
  readonly policy: CompiledPolicy;
  /** How often it was forwarded. */
  readonly forwards: number;
  readonly #connections: ClientConnections;
  #invited = false;

  readonly #forwarding: Forwarding | null;

  constructor(
    req: ClientRequest,
    res: ClientResponse,
    endpoint: GatewayEndpoint,
    connections: ClientConnections,
    forwarding: Forwarding | null = null,
  ) {
    const from = forwarding?.from;
    this.req = req;
    this.res = res;
    this.endpoint = endpoint;
    this.method = req.method ?? 'GET';
    this.target = from?.target ?? req.url ?? '/';
    this.connection = forwarding?.connection ?? connections.of(req.socket, endpoint);
    this.headers = from ? [...from.headers] : headersOf(req, this.connection, endpoint);
    this.body = from ? from.body : req.body && new RequestBody(req, req.body);
    this.policy = from ? inSuccession(this, from) : endpoint.policy;
    this.forwards = from ? from.forwards + 1 : 0;
    this.#connections = connections;
    this.#forwarding = forwarding;
  }

  /**
   * The same request for an internal endpoint, whose policy sees it as it is by now.
   *
   * @param onFailure told, in place of the client, that it could not be taken to the endpoint's upstream
   */
  forwardedTo(endpoint: GatewayEndpoint, onFailure: (failure: ForwardFailure) => void): EdgeRequest {
    const forwarding = { from: this, connection: this.connection.anew(), onFailure };
    return new EdgeRequest(this.req, this.res, endpoint, this.#connections, forwarding);
  }

  /** What is to be told when a forwarded request fails; null for one that was not forwarded. */
  get onFailure(): ((failure: ForwardFailure) => void) | null {
    return this.#forwarding?.onFailure ?? null;
  }

  get version(): string {
    return `HTTP/${this.req.httpVersion}`;
  }

  async readBody(limit: number): Promise<Buffer | null> {
    if (this.body === null) return NO_BODY;
    this.invite();
    return this.body.read(limit);
  }

  /** Whether the client still waits for leave to send its body (RFC 9110, 10.1.1). */
  get awaitsLeave(): boolean {
    if (this.req.headers.expect === undefined) return false;
    return this.#forwarding ? this.#forwarding.from.awaitsLeave : !this.#invited;
  }

  /** Lets the client send its body if it waits for leave: the upstream has given it, or a policy has to read it before. */
  invite(): void {
    if (this.#forwarding) this.#forwarding.from.invite();
    else if (this.awaitsLeave) {
      this.#invited = true;
      this.res.writeInterim(100, []);
    }
  }
}

function headersOf(req: ClientRequest, { clientIp }: ClientConnection, { protocol }: GatewayEndpoint): string[] {
  return requestHeaders(req.rawHeaders, req.headers.connection, {
    address: clientIp,
    protocol: protocol === 'https' ? 'https' : 'http',
  });
}

/** The say of both endpoints on a response: of the internal one, then of the one that forwards to it. */
function inSuccession(inner: EdgeRequest, outer: EdgeRequest): CompiledPolicy {
  const [first, second] = [inner.endpoint.policy, outer.policy];
  const isSilent = first.onHttpResponse === null && second.onHttpResponse === null;
  return {
    ...first,
    onHttpResponse: isSilent
      ? null
      : (_, response) => first.onHttpResponse?.(inner, response) ?? second.onHttpResponse?.(outer, response),
    onUpstreamDone: (_, status) => {
      first.onUpstreamDone?.(inner, status);
      second.onUpstreamDone?.(outer, status);
    },
  };
}
