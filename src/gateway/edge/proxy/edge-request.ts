import { isName, nameAt } from '../../../lib/http/header-fields.ts';
import type { MemoryBudget } from '../../../lib/memory-budget.ts';
import { turnTime } from '../../../lib/time/loop-turn.ts';
import type { UpstreamConfig } from '../../../traffic-policy/action-config.ts';
import type { CompiledPolicy } from '../../../traffic-policy/engine.ts';
import { ClientLeft } from '../../../traffic-policy/policy-errors.ts';
import type {
  ClientBandwidth,
  NotAdmitted,
  PolicyCalls,
  PolicyRequest,
} from '../../../traffic-policy/policy-subjects.ts';
import type { OutboundRequest, OutboundResponse } from '../../../traffic-policy/public-request.ts';
import type { RuleRecord } from '../../../traffic-policy/rule-record.ts';
import { type Cookies, NO_COOKIES, takeOwnCookies } from '../../../traffic-policy/sign-in/sign-in-cookies.ts';
import type { ForwardFailure, MaybePromise } from '../../../traffic-policy/steps.ts';
import type { GatewayEndpoint } from '../../endpoints/online-endpoint.ts';
import type { NamedPort } from '../../endpoints/port-names.ts';
import type { Admission, ClientConnection } from '../connections/connect-phase.ts';
import type { ClientRequest, ClientResponse } from '../http/client-message.ts';
import { headerValue, requestHeaders } from '../http/headers.ts';
import { markCookies, takeForeignCookies } from './port-cookies.ts';
import { bodyMemory, RequestBody } from './request-body.ts';
import { RequestWatch } from './request-watch.ts';
import { guardCookies } from './response-cookies.ts';

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

/** What requests need of the proxy. */
export interface RequestContext {
  /** Sends requests of policies to internal endpoints. */
  readonly ask: AskInternal;
  /** Names of the gateway's services. */
  readonly ownNames: Iterable<string>;
  /** The port of the gateway's address that a request is for, at the port or by its name; undefined: it is for another host. */
  namedPort(req: ClientRequest): NamedPort | undefined;
}

/**
 * Tells another gateway, which serves an internal endpoint, what the client has asked for. Policies may have rewritten the rest,
 * and only gateways reach such endpoints from outside.
 */
const ASKED_HEADER = 'gateway-client-asked';

type OnFailure = (failure: ForwardFailure) => void;

export class EdgeRequest implements PolicyRequest {
  readonly method: string;
  target: string;
  readonly headers: string[];
  readonly connection: ClientConnection;
  readonly endpoint: GatewayEndpoint;
  /** Applies to the response: the endpoint's policy, and those of the endpoints that forwarded the request. */
  readonly policy: CompiledPolicy;
  readonly forwards: number;
  readonly watch: RequestWatch | null;
  readonly record: RuleRecord | undefined;
  #calls: PolicyCalls | null;
  #clientLeft: AbortSignal | null = null;
  readonly clientHost: string;
  readonly clientTarget: string;
  readonly ownCookies: Cookies;
  responseCookies?: readonly string[];
  upstream?: UpstreamConfig;
  bandwidth?: ClientBandwidth;
  notAdmitted?: () => NotAdmitted;
  endedBy?: string;
  isProbe?: true;
  /** When it came, in whole milliseconds of the loop's turns. */
  readonly #cameAt: number;
  /** Where the endpoint was when the request came: the port may have another name by the time of the response. */
  readonly #place: NamedPort | undefined;
  /** Why no response of the upstream reaches the client. */
  #fate: 'refused' | 'failed' | null = null;
  #expectContinue: ExpectContinue | null;

  /**
   * @param outer the request as the policy that forwarded it left it
   * @param onFailure called instead of answering when the upstream is unreachable; null: the client gets the error
   * @param body left out: that of the client's request, which nobody has read
   */
  constructor(
    readonly req: ClientRequest,
    readonly res: ClientResponse,
    { endpoint, connection, isForwarded = false, isProbe }: Admission,
    private readonly context: RequestContext,
    readonly outer: EdgeRequest | null = null,
    readonly onFailure: OnFailure | null = null,
    readonly body: RequestBody | null = outer === null
      ? req.body && new RequestBody(req, req.body, connection.clientIp)
      : outer.body,
  ) {
    this.endpoint = endpoint;
    this.connection = connection;
    this.method = req.method ?? 'GET';
    this.#cameAt = outer === null ? turnTime() | 0 : outer.#cameAt;
    if (isProbe) this.isProbe = true;
    else res.onStatus = this;
    this.#calls = outer === null ? null : outer.#calls;
    if (outer === null) {
      const asked = isForwarded ? headerValue(req.rawHeaders, ASKED_HEADER) : undefined;
      const slash = asked?.indexOf('/');
      this.clientHost = asked?.slice(0, slash) ?? req.headers.host ?? '';
      this.clientTarget = asked?.slice(slash) ?? req.url ?? '/';
      const protocol = endpoint.protocol === 'https' ? 'https' : 'http';
      this.target = req.url ?? '/';
      // Another gateway adds who the client is, or has.
      const from =
        endpoint.writesForwarded || isForwarded ? null : ({ address: connection.clientIp, protocol } as const);
      this.headers = requestHeaders(req.rawHeaders, req.headers.connection, from);
      if (asked !== undefined) remove(this.headers, ASKED_HEADER);
      this.ownCookies = endpoint.isRemote ? NO_COOKIES : takeOwnCookies(this.headers);
      this.#place = context.namedPort(req);
      if (this.#place !== undefined) takeForeignCookies(this.headers, this.#place);
      this.policy = endpoint.policy;
      this.forwards = 0;
      this.#expectContinue = req.headers.expect === undefined ? null : new ExpectContinue(res);
    } else {
      this.clientHost = outer.clientHost;
      this.clientTarget = outer.clientTarget;
      this.target = outer.target;
      this.headers = [...outer.headers];
      this.ownCookies = outer.ownCookies;
      if (endpoint.isRemote) putBack(this.headers, outer.ownCookies);
      this.policy = withOuterPolicy(endpoint.policy, outer);
      this.#place = outer.#place;
      this.forwards = outer.forwards + 1;
      if (outer.responseCookies !== undefined) this.responseCookies = outer.responseCookies;
      if (outer.bandwidth !== undefined) this.bandwidth = outer.bandwidth;
      this.#expectContinue = outer.#expectContinue;
    }
    if (connection.bandwidth !== undefined) this.bandwidth ??= connection.bandwidth;
    if (endpoint.isRemote && !endpoint.writesForwarded) {
      remove(this.headers, ASKED_HEADER);
      this.headers.push(ASKED_HEADER, this.clientHost + this.clientTarget);
    }
    const { feed } = endpoint;
    this.watch = !isProbe && feed?.admits() ? new RequestWatch(feed, this, connection).follow(res) : null;
    this.record = this.watch?.record;
  }

  forwardedTo(endpoint: GatewayEndpoint, onFailure: OnFailure): EdgeRequest {
    const connection = this.connection.forNextPolicy();
    const admission = { endpoint, connection, ...(this.isProbe && { isProbe: this.isProbe }) };
    return new EdgeRequest(this.req, this.res, admission, this.context, this, onFailure);
  }

  /** The same request for another member of a pool, whose policy applies instead. */
  forMember(admission: Admission): EdgeRequest {
    const next = new EdgeRequest(this.req, this.res, admission, this.context, null, null, this.body);
    next.#expectContinue = this.#expectContinue;
    return next.countWith(this);
  }

  get calls(): PolicyCalls {
    this.#calls ??= {
      left: MAX_CALLS,
      ask: (outbound, signal) => this.context.ask(this, outbound, signal),
    };
    return this.#calls;
  }

  get clientLeft(): AbortSignal {
    this.#clientLeft ??= signalAtEnd(this.res);
    return this.#clientLeft;
  }

  /** Counts the requests that policies make for this one with those for another. */
  countWith(other: EdgeRequest): this {
    this.#calls = other.calls;
    return this;
  }

  /** A policy or a restriction answers in place of the upstream. */
  refuse(): void {
    this.#fate = 'refused';
  }

  /** The upstream has no response. */
  fail(): void {
    this.#fate = 'failed';
  }

  /** Counts how it has ended, for its endpoint and for those that have forwarded it. @param status that the client gets */
  responded(status: number): void {
    const ms = (turnTime() | 0) - this.#cameAt;
    this.#count(status, ms);
    for (let { outer } = this; outer !== null; outer = outer.outer) outer.#count(status, ms);
  }

  #count(status: number, ms: number): void {
    const { traffic } = this.endpoint;
    if (this.#fate === 'refused') traffic.countRefusal(this.endedBy, ms);
    else if (this.#fate === 'failed') traffic.countFailure(ms);
    else traffic.countResponse(status, ms);
  }

  get version(): string {
    return `HTTP/${this.req.httpVersion}`;
  }

  async readBody(limit: number): Promise<Buffer | null> {
    if (this.body === null) return NO_BODY;
    this.sendContinue();
    return this.body.read(limit);
  }

  replaceBody(body: Buffer): boolean {
    return this.body?.replace(body) !== false;
  }

  get bodyMemory(): MemoryBudget {
    return bodyMemory(this.connection.clientIp);
  }

  onEnd(callback: () => void): void {
    const { req, res } = this;
    // After an upgrade, no response ends.
    const end = req.upgrade === null ? res : req.socket;
    if (end.destroyed) callback();
    else end.once('close', callback);
  }

  get awaitsContinue(): boolean {
    return this.#expectContinue?.isPending === true;
  }

  /**
   * Completes the headers of a response, which policies have seen, with cookies of the gateway's actions, and takes out what would
   * set cookies of others. @returns the same list
   */
  withCookies(headers: string[]): string[] {
    this.guardCookies(headers);
    if (this.responseCookies !== undefined) headers.push(...this.responseCookies);
    return headers;
  }

  /** Takes out of a response's headers what would set or delete cookies of others. @returns the same list */
  guardCookies(headers: string[]): string[] {
    guardCookies(headers, this.clientHost, this.context.ownNames);
    if (this.#place !== undefined) markCookies(headers, this.#place);
    return headers;
  }

  /** Tells a client that waits for it to send its body: the upstream has agreed, or a policy has to read it first. */
  sendContinue(): void {
    this.#expectContinue?.send();
  }
}

/** That gateway takes them out again: a policy of it may sign people in. */
function putBack(headers: string[], cookies: Cookies): void {
  if (cookies.size > 0) headers.push('Cookie', Array.from(cookies, (pair) => pair.join('=')).join('; '));
}

function remove(headers: string[], lower: string): void {
  for (let at = headers.length - 2; at >= 0; at -= 2) if (isName(nameAt(headers, at), lower)) headers.splice(at, 2);
}

function signalAtEnd(res: ClientResponse): AbortSignal {
  const end = new AbortController();
  const abort = () => end.abort(new ClientLeft());
  if (res.destroyed) abort();
  else res.once('close', abort);
  return end.signal;
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
