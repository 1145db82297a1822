import type { CompiledPolicy } from '../../../traffic-policy/engine.ts';
import type { PolicyRequest } from '../../../traffic-policy/policy-subjects.ts';
import type { RuleRecord } from '../../../traffic-policy/rule-record.ts';
import type { ForwardFailure } from '../../../traffic-policy/steps.ts';
import type { GatewayEndpoint } from '../../endpoints/endpoint.ts';
import type { Admission } from '../clients/client-connections.ts';
import type { ClientConnection } from '../connections/client-connection.ts';
import type { ClientRequest, ClientResponse } from '../http/client-message.ts';
import { requestHeaders } from '../http/headers.ts';
import { RequestBody } from './request-body.ts';
import { RequestWatch } from './request-watch.ts';

/** A client that sends its body only after `100 Continue` (RFC 9110, 10.1.1). */
class ExpectContinue {
  isPending = true;

  constructor(private readonly res: ClientResponse) {}

  /** Sends the interim response, once. */
  send(): void {
    if (!this.isPending) return;
    this.isPending = false;
    this.res.writeInterim(100, []);
  }
}

const NO_BODY = Buffer.alloc(0);

type OnFailure = (failure: ForwardFailure) => void;

interface EdgeRequestParts extends Admission {
  readonly req: ClientRequest;
  readonly res: ClientResponse;
  readonly target: string;
  readonly headers: string[];
  readonly body: RequestBody | null;
  readonly expectContinue: ExpectContinue | null;
  readonly policy: CompiledPolicy;
  readonly forwards: number;
  readonly onFailure: OnFailure | null;
}

/** A client's request on its way through the policy of one endpoint. */
export class EdgeRequest implements PolicyRequest {
  readonly method: string;
  target: string;
  readonly headers: string[];
  readonly connection: ClientConnection;
  readonly req: ClientRequest;
  readonly res: ClientResponse;
  readonly endpoint: GatewayEndpoint;
  readonly body: RequestBody | null;
  /** Applies to the response: the endpoint's policy, and those of the endpoints that forwarded the request. */
  readonly policy: CompiledPolicy;
  /** How often the request has been forwarded to another endpoint. */
  readonly forwards: number;
  /** Called instead of answering the client when the upstream is unreachable; null when the client gets the error. */
  readonly onFailure: OnFailure | null;
  /** Null when nobody watches the endpoint. */
  readonly watch: RequestWatch | null;
  readonly record: RuleRecord | undefined;
  readonly #expectContinue: ExpectContinue | null;

  private constructor(parts: EdgeRequestParts) {
    this.req = parts.req;
    this.res = parts.res;
    this.method = parts.req.method ?? 'GET';
    this.target = parts.target;
    this.headers = parts.headers;
    this.endpoint = parts.endpoint;
    this.connection = parts.connection;
    this.body = parts.body;
    this.policy = parts.policy;
    this.forwards = parts.forwards;
    this.onFailure = parts.onFailure;
    this.#expectContinue = parts.expectContinue;
    const { feed } = parts.endpoint;
    this.watch = feed?.admits() ? new RequestWatch(feed, this, parts.connection).follow(parts.res) : null;
    this.record = this.watch?.record;
  }

  static received(req: ClientRequest, res: ClientResponse, { endpoint, connection }: Admission): EdgeRequest {
    const protocol = endpoint.protocol === 'https' ? 'https' : 'http';
    const client = { address: connection.clientIp, protocol } as const;
    return new EdgeRequest({
      req,
      res,
      endpoint,
      connection,
      target: req.url ?? '/',
      headers: requestHeaders(req.rawHeaders, req.headers.connection, client),
      body: req.body && new RequestBody(req, req.body),
      expectContinue: req.headers.expect === undefined ? null : new ExpectContinue(res),
      policy: endpoint.policy,
      forwards: 0,
      onFailure: null,
    });
  }

  /**
   * The request as this endpoint's policy left it, for an internal endpoint.
   *
   * @param onFailure called instead of answering the client when that endpoint's upstream is unreachable
   */
  forwardedTo(endpoint: GatewayEndpoint, onFailure: OnFailure): EdgeRequest {
    return new EdgeRequest({
      req: this.req,
      res: this.res,
      endpoint,
      connection: this.connection.forNextPolicy(),
      target: this.target,
      headers: [...this.headers],
      body: this.body,
      expectContinue: this.#expectContinue,
      policy: withOuterPolicy(endpoint.policy, this),
      forwards: this.forwards + 1,
      onFailure,
    });
  }

  get version(): string {
    return `HTTP/${this.req.httpVersion}`;
  }

  async readBody(limit: number): Promise<Buffer | null> {
    if (this.body === null) return NO_BODY;
    this.sendContinue();
    return this.body.read(limit);
  }

  /** Whether the client waits for an interim response before it sends its body. */
  get awaitsContinue(): boolean {
    return this.#expectContinue?.isPending === true;
  }

  /** Tells a client that waits for it to send its body: the upstream has agreed, or a policy has to read it first. */
  sendContinue(): void {
    this.#expectContinue?.send();
  }
}

/** The policy of an internal endpoint, followed on the response by that of the endpoint that forwarded the request. */
function withOuterPolicy(inner: CompiledPolicy, outer: EdgeRequest): CompiledPolicy {
  const { policy } = outer;
  const isSilent = inner.onHttpResponse === null && policy.onHttpResponse === null;
  return {
    ...inner,
    onHttpResponse: isSilent
      ? null
      : (request, response) => inner.onHttpResponse?.(request, response) ?? policy.onHttpResponse?.(outer, response),
    shouldYield: isSilent ? null : () => inner.shouldYield?.() === true || policy.shouldYield?.() === true,
    onUpstreamDone: (request, status) => {
      inner.onUpstreamDone?.(request, status);
      policy.onUpstreamDone?.(outer, status);
    },
  };
}
