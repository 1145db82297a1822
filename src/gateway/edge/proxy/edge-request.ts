import type { CompiledPolicy } from '../../../traffic-policy/engine.ts';
import type { PolicyCalls, PolicyRequest } from '../../../traffic-policy/policy-subjects.ts';
import type { OutboundRequest, OutboundResponse } from '../../../traffic-policy/public-request.ts';
import type { RuleRecord } from '../../../traffic-policy/rule-record.ts';
import type { ForwardFailure, MaybePromise } from '../../../traffic-policy/steps.ts';
import type { GatewayEndpoint } from '../../endpoints/endpoint.ts';
import type { ClientConnection } from '../connections/client-connection.ts';
import type { Admission } from '../connections/connect-phase.ts';
import type { ClientRequest, ClientResponse } from '../http/client-message.ts';
import { requestHeaders } from '../http/headers.ts';
import { bodyMemory, RequestBody } from './request-body.ts';
import { RequestWatch } from './request-watch.ts';

/** A client that sends its body only after `100 Continue` (RFC 9110, 10.1.1). */
class ExpectContinue {
  isPending = true;

  constructor(private readonly res: ClientResponse) {}

  send(): void {
    if (!this.isPending) return;
    this.isPending = false;
    this.res.writeInterim(100, []);
  }
}

const NO_BODY = Buffer.alloc(0);

/** Requests that policies may make for one request of a client: those of internal endpoints could go in circles. */
const MAX_CALLS = 10;

type AskInternal = (from: EdgeRequest, outbound: OutboundRequest, signal: AbortSignal) => Promise<OutboundResponse>;

type OnFailure = (failure: ForwardFailure) => void;

export class EdgeRequest implements PolicyRequest {
  readonly method: string;
  target: string;
  readonly headers: string[];
  readonly connection: ClientConnection;
  readonly endpoint: GatewayEndpoint;
  readonly body: RequestBody | null;
  /** Applies to the response: the endpoint's policy, and those of the endpoints that forwarded the request. */
  readonly policy: CompiledPolicy;
  readonly forwards: number;
  readonly watch: RequestWatch | null;
  readonly record: RuleRecord | undefined;
  #calls: PolicyCalls | null;
  responseHeaders?: readonly string[];
  readonly #expectContinue: ExpectContinue | null;

  /**
   * @param ask sends requests of policies to internal endpoints
   * @param outer the request as the policy that forwarded it left it
   * @param onFailure called instead of answering when the upstream is unreachable; null: the client gets the error
   */
  constructor(
    readonly req: ClientRequest,
    readonly res: ClientResponse,
    { endpoint, connection, isForwarded = false }: Admission,
    private readonly ask: AskInternal,
    outer: EdgeRequest | null = null,
    readonly onFailure: OnFailure | null = null,
  ) {
    this.endpoint = endpoint;
    this.connection = connection;
    this.method = req.method ?? 'GET';
    this.#calls = outer === null ? null : outer.#calls;
    if (outer === null) {
      const protocol = endpoint.protocol === 'https' ? 'https' : 'http';
      this.target = req.url ?? '/';
      // Another gateway adds who the client is, or has.
      const from =
        endpoint.writesForwarded || isForwarded ? null : ({ address: connection.clientIp, protocol } as const);
      this.headers = requestHeaders(req.rawHeaders, req.headers.connection, from);
      this.body = req.body && new RequestBody(req, req.body);
      this.policy = endpoint.policy;
      this.forwards = 0;
      this.#expectContinue = req.headers.expect === undefined ? null : new ExpectContinue(res);
    } else {
      this.target = outer.target;
      this.headers = [...outer.headers];
      this.body = outer.body;
      this.policy = withOuterPolicy(endpoint.policy, outer);
      this.forwards = outer.forwards + 1;
      if (outer.responseHeaders !== undefined) this.responseHeaders = outer.responseHeaders;
      this.#expectContinue = outer.#expectContinue;
    }
    const { feed } = endpoint;
    this.watch = feed?.admits() ? new RequestWatch(feed, this, connection).follow(res) : null;
    this.record = this.watch?.record;
  }

  forwardedTo(endpoint: GatewayEndpoint, onFailure: OnFailure): EdgeRequest {
    const admission = { endpoint, connection: this.connection.forNextPolicy() };
    return new EdgeRequest(this.req, this.res, admission, this.ask, this, onFailure);
  }

  get calls(): PolicyCalls {
    this.#calls ??= {
      left: MAX_CALLS,
      ask: (outbound, signal) => this.ask(this, outbound, signal),
      keep: keptUntilEnd(this),
    };
    return this.#calls;
  }

  /** Counts the requests that policies make for this one with those for another. */
  countWith(other: EdgeRequest): this {
    this.#calls = other.calls;
    return this;
  }

  get version(): string {
    return `HTTP/${this.req.httpVersion}`;
  }

  async readBody(limit: number): Promise<Buffer | null> {
    if (this.body === null) return NO_BODY;
    this.sendContinue();
    return this.body.read(limit);
  }

  replaceBody(body: Buffer): void {
    this.body?.replace(body);
  }

  get awaitsContinue(): boolean {
    return this.#expectContinue?.isPending === true;
  }

  /** Tells a client that waits for it to send its body: the upstream has agreed, or a policy has to read it first. */
  sendContinue(): void {
    this.#expectContinue?.send();
  }
}

/** See {@link PolicyCalls.keep}. */
function keptUntilEnd({ req, res }: EdgeRequest): PolicyCalls['keep'] {
  const memory = bodyMemory(req.socket);
  let kept = 0;
  return (bytes) => {
    if (res.destroyed || !memory.leavesRoom(bytes)) return false;
    if (kept === 0 && bytes > 0) res.once('close', () => memory.release(kept));
    memory.reserve(bytes);
    kept += bytes;
    return true;
  };
}

/** An outcome, or that of what comes next when there is none. */
function eitherOf<Outcome>(
  result: MaybePromise<Outcome | undefined>,
  next: () => MaybePromise<Outcome | undefined>,
): MaybePromise<Outcome | undefined> {
  return result instanceof Promise ? result.then((outcome) => outcome ?? next()) : (result ?? next());
}

/** The policy of an internal endpoint, followed on the response by that of the endpoint that forwarded the request. */
function withOuterPolicy(inner: CompiledPolicy, outer: EdgeRequest): CompiledPolicy {
  const { policy } = outer;
  const isSilent = inner.onHttpResponse === null && policy.onHttpResponse === null;
  return {
    ...inner,
    onHttpResponse: isSilent
      ? null
      : (request, response) =>
          eitherOf(inner.onHttpResponse?.(request, response), () => policy.onHttpResponse?.(outer, response)),
    onEventStreamMessage:
      inner.onEventStreamMessage === null && policy.onEventStreamMessage === null
        ? null
        : (request, message) =>
            eitherOf(inner.onEventStreamMessage?.(request, message), () =>
              policy.onEventStreamMessage?.(outer, message),
            ),
    shouldYield: isSilent ? null : () => inner.shouldYield?.() === true || policy.shouldYield?.() === true,
    onUpstreamDone: (request, status) => {
      inner.onUpstreamDone?.(request, status);
      policy.onUpstreamDone?.(outer, status);
    },
  };
}
