import type { ByteChannel } from '../../../agent-protocol/byte-channel.ts';
import { DIAL_FAILURE_TEXT, dialSummary } from '../../../agent-protocol/dial-failure.ts';
import type { ApiError } from '../../../lib/errors.ts';
import type { ResponseHead } from '../../../lib/http/response-head.ts';
import { MalformedMessage } from '../../../lib/http/response-head.ts';
import type { PolicyResponse } from '../../../traffic-policy/policy-subjects.ts';
import type { ResponseOutcome } from '../../../traffic-policy/steps.ts';
import type { EdgeContext } from '../../context/gateway-context.ts';
import { type ClientInfo, type GatewayEndpoint, StreamsExhausted } from '../../endpoints/online-endpoint.ts';
import { TARGET_FAILED } from '../connections/connect-phase.ts';
import {
  asError,
  ConnectionLost,
  GatewaySilent,
  isLoss,
  UPSTREAM_UNREACHABLE,
  upstreamFailure,
  upstreamUnreachable,
} from '../http/edge-errors.ts';
import { answerError, closeUnlessBodyRead } from '../http/error-response.ts';
import { mayHaveBody, responseHeaders } from '../http/headers.ts';
import { requestHead } from '../upstreams/upstream-connection.ts';
import type { ExchangeEvents, OutgoingRequest, UpstreamLink, UpstreamLinks } from '../upstreams/upstream-link.ts';
import type { EdgeRequest } from './edge-request.ts';
import { HeldResponse } from './held-response.ts';
import { answerInstead } from './policy-outcome.ts';
import { takeSetCookies } from './response-cookies.ts';
import { ResponseWriter, sinkFor } from './response-writer.ts';
import { hostIn, leadToEndpoint, nameUpstream } from './upstream-addresses.ts';

export interface ExchangeParts {
  request: EdgeRequest;
  pool: UpstreamLinks;
  from: ClientInfo;
  context: EdgeContext;
  onMalformedResponse(endpoint: GatewayEndpoint, problem: string): void;
  /** Called when the agent cannot connect to the upstream. @returns whether another member of the pool gets the request */
  onUnreachable(request: EdgeRequest): boolean;
  /** Called in a turn after a request failed that may safely be sent twice. @returns whether it is served again, as its agent was lost */
  onLost(request: EdgeRequest): boolean;
  /** Called while the agent of a request that may safely be sent twice does not answer. @returns whether another one serves it now */
  onStalled(request: EdgeRequest): boolean;
  upgrade?: string;
}

const CONTINUE = 100;
const BAD_GATEWAY = 502;
const FIRST_ERROR = 400;
const FIRST_SERVER_ERROR = 500;

const TAKES_TRAILERS = /(?:^|,)[ \t]*trailers[ \t]*(?:,|$)/i;

const DIAL_FAILURE = Buffer.from(DIAL_FAILURE_TEXT);

/** Methods that may safely be sent twice (RFC 9110, 9.2.1). */
const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE']);

/**
 * Endpoints whose upstream has closed its connection in the middle of an upload. The SDK forgets what the upstream has answered
 * when it cannot write to it.
 */
const closesUploads = new WeakSet<GatewayEndpoint>();
/** Milliseconds that such an upstream has to refuse an upload for its head. */
const HEAD_FIRST_MS = 500;

/** Sends one request to the upstream and streams its response to the client. */
export class Exchange implements ExchangeEvents {
  #connection: UpstreamLink | null = null;
  #outgoing: OutgoingRequest | null = null;
  #head: ResponseHead | null = null;
  #writer: ResponseWriter | null = null;
  #over = false;
  #resent = false;
  #repeatable = false;
  /** What has arrived while the response waits for its policy; null while it does not wait. */
  #held: HeldResponse | null = null;
  /** The whole response has arrived: its connection may serve another exchange. */
  #received = false;
  readonly #onTurn = (): void => {
    if (!this.#over && this.parts.request.policy.shouldYield?.() === true) setImmediate(this.#onTurn);
    else this.#goOn(() => this.#takeHead());
  };

  constructor(protected readonly parts: ExchangeParts) {}

  start(): void {
    const { request, upgrade, pool, from } = this.parts;
    const { req, res, body } = request;
    const hostHeader = request.upstream?.host_header;
    if (hostHeader !== undefined) nameUpstream(request.headers, hostHeader, request.endpoint.forwardsTo);
    const trailers = req.headers.te !== undefined && TAKES_TRAILERS.test(req.headers.te);
    const { awaitsContinue } = request;
    this.#outgoing = { request, body: body?.framing ?? null, awaitsContinue, trailers, upgrade };
    request.watch?.sentUpstream(request.target, requestHead(this.#outgoing));
    res.on('close', () => this.#over || this.#clientLeft());
    this.#repeatable = body === null && SAFE_METHODS.has(request.method);
    this.#send(this.#outgoing, pool.take(from, this.#repeatable));
  }

  #clientLeft(): void {
    if (this.#head === null) this.parts.request.endpoint.traffic.abandoned += 1;
    this.giveUp();
  }

  #send(outgoing: OutgoingRequest, connection: UpstreamLink): void {
    this.#connection = connection;
    connection.send(outgoing, this);
  }

  onSent(): void {
    const { body, endpoint } = this.parts.request;
    if (body === null) return;
    if (closesUploads.has(endpoint)) setTimeout(() => this.#sendBody(), HEAD_FIRST_MS).unref();
    else this.#sendBody();
  }

  #sendBody(): void {
    const isRefused = this.#head !== null && this.#head.status >= FIRST_ERROR;
    if (this.#connection && !this.#over && !this.#received && !isRefused)
      this.parts.request.body?.sendTo(this.#connection, this.parts.request.bandwidth?.down);
  }

  onDrain(): void {
    this.parts.request.body?.drain();
  }

  onInterim({ status, headers, connection, reason }: ResponseHead): void {
    const { request } = this.parts;
    if (status === CONTINUE && request.awaitsContinue) request.sendContinue();
    else {
      const passed = request.guardCookies(responseHeaders(headers, connection, status));
      request.res.writeInterim(status, passed, reason);
    }
  }

  get isOver(): boolean {
    return this.#over;
  }

  onHead(head: ResponseHead): void {
    this.#head = head;
    // A 502 may come from the agent: another upstream may get the body.
    if (head.status !== BAD_GATEWAY) this.#stopRefusedBody(head);
    if (this.parts.request.policy.shouldYield?.() !== true) return void this.#takeHead();
    // The policies of the authtoken have run for long in this turn: the response phase runs in a later one.
    this.#hold();
    setImmediate(this.#onTurn);
  }

  /** The upstream reads no more of a request that it refuses so (RFC 9112, 9.5). */
  #stopRefusedBody({ status, keepAlive }: ResponseHead): void {
    if (status >= FIRST_ERROR && !keepAlive) this.parts.request.body?.stop();
  }

  onBody(piece: Buffer): void {
    if (this.#held === null && this.#writer === null) this.#begin(piece);
    if (this.#held === null) this.#writer?.write(piece);
    else this.#held.add(piece);
  }

  onComplete(trailers: string[]): void {
    this.#received = true;
    if (this.#held === null && this.#writer === null) this.#begin(null);
    if (this.#held !== null) return void this.#held.end({ trailers });
    this.parts.request.body?.stop();
    if (this.#writer === null) return;
    this.#over = true;
    this.#writer.end(trailers);
  }

  onFailed(error: Error): void {
    if (this.#held !== null) return void this.#held.end({ error });
    const { request, context } = this.parts;
    if (this.#mayResend(error)) return void this.#resend();
    if (this.#over) return;
    this.#over = true;
    const retryable = this.#isUploadLost(error) ? this.#uploadLost() : null;
    request.body?.stop();
    if (error instanceof MalformedMessage) {
      this.parts.onMalformedResponse(request.endpoint, error.message);
      request.watch?.refused(error.message);
    }
    // An incomplete response has to look incomplete: the connection ends without the last chunk.
    if (retryable !== null) void retryable.finally(() => this.#fail(upstreamFailure(error)));
    else if (this.#writer === null) this.#fail(upstreamFailure(error));
    else {
      if (!context.counters.isLink(request.req.socket)) context.counters.upstreamFailures += 1;
      request.endpoint.traffic.countError();
      this.#writer.abort(error instanceof ConnectionLost ? error.resetCode : undefined);
    }
  }

  onStalled(): void {
    if (!this.#repeatable || this.#over || !this.parts.onStalled(this.parts.request)) return;
    this.#over = true;
    this.#connection?.abort();
  }

  #isUploadLost(error: Error): boolean {
    const isClosed = error instanceof ConnectionLost && !(error.cause instanceof StreamsExhausted);
    return isClosed && this.parts.request.body?.isUnderWay === true && this.#connection?.unanswered === true;
  }

  /** @returns resolves when the client may try again; null: at once */
  #uploadLost(): Promise<void> | null {
    const { request, context } = this.parts;
    if (request.endpoint.losesAnswers) closesUploads.add(request.endpoint);
    return context.options.onUploadLost?.(request.endpoint.url) ?? null;
  }

  #takeHead(): void {
    // Wait for the body of a 502: it may come from the agent, not from the upstream.
    if (this.#head?.status !== BAD_GATEWAY) this.#begin(null);
  }

  /** Holds what arrives from now on, and lets the upstream wait. */
  #hold(): void {
    this.#held ??= new HeldResponse(() => this.parts.request.bodyMemory);
    if (!this.#received) this.#connection?.pause();
  }

  /** Does what the response has waited for, and passes on what has arrived; `body` stands for its body. */
  #goOn(begin: () => void, body?: Buffer): void {
    const held = this.#held;
    this.#held = null;
    if (this.#over) {
      held?.discard();
      return;
    }
    begin();
    held?.passOn(this, body);
    if (!this.#over && !this.#received && this.#held === null) this.#connection?.resume();
  }

  /** Reads the body for the policy, which then decides whether the client gets it. */
  #readBody(limit: number): Promise<Buffer | null> {
    this.#hold();
    if (!this.#received) this.#connection?.resume();
    return this.#held?.read(limit) ?? Promise.resolve(null);
  }

  /** Overridden by {@link UpgradeExchange}; others never request an upgrade. */
  onUpgrade(_head: ResponseHead, channel: ByteChannel, _rest: Buffer): void {
    channel.abort();
    this.parts.pool.upgradeEnded();
  }

  protected giveUp(): void {
    this.#leave();
    this.parts.request.body?.stop();
  }

  #leave(): void {
    this.#over = true;
    this.#held?.discard();
    if (!this.#received) this.#connection?.abort();
  }

  /** @param status of the upstream's response; null without one */
  protected notifyPolicy(status: number | null): void {
    const { request } = this.parts;
    request.policy.onUpstreamDone?.(request, status);
  }

  #fail(error: ApiError): void {
    // The session ends after its streams.
    if (this.#repeatable && this.#head === null && isLoss(error))
      setImmediate(() => this.parts.onLost(this.parts.request) || this.#answerFailure(error));
    else this.#answerFailure(error);
  }

  #answerFailure(error: ApiError): void {
    const { request, context } = this.parts;
    request.fail();
    request.endpoint.traffic.countError();
    if (error.code === UPSTREAM_UNREACHABLE && this.parts.onUnreachable(request)) return;
    request.body?.stop();
    this.notifyPolicy(null);
    if (request.onFailure) {
      request.onFailure(TARGET_FAILED);
      return;
    }
    context.counters.upstreamFailures += 1;
    answerError(request.req, request.res, error);
  }

  /** Starts the response to the client. When something else is answered instead, or the policy still runs, there is no writer. */
  #begin(first: Buffer | null): void {
    const { request } = this.parts;
    const { policy } = request;
    const head = this.#head;
    if (head === null || this.#connection === null) return;
    const headers = responseHeaders(head.headers, head.connection, head.status);
    if (head.status === BAD_GATEWAY && isDialFailure(request.method, headers, first)) {
      this.#connection.abort();
      if (this.#mayTryOthers()) return void this.#resend();
      this.#leave();
      this.#fail(upstreamUnreachable(first && dialSummary(first)));
      return;
    }
    request.body?.forgetSent();
    if (head.status === BAD_GATEWAY) this.#stopRefusedBody(head);
    const { endpoint } = request;
    // The gateway that serves it does this.
    if (request.upstream?.rewrite_redirects !== false && !endpoint.isRemote) {
      leadToEndpoint(headers, () => ({
        forwardsTo: endpoint.forwardsTo,
        sentHost: hostIn(request.headers),
        clientHost: request.req.headers.host ?? '',
        clientScheme: endpoint.protocol,
      }));
    }
    if (head.status >= FIRST_SERVER_ERROR) request.endpoint.traffic.countError();
    this.notifyPolicy(head.status);
    if (request.endpoint.isRemote)
      request.responseCookies = [...(request.responseCookies ?? []), ...takeSetCookies(headers)];
    if (policy.onHttpResponse === null) return void this.#respond({ status: head.status, headers }, undefined);
    const response = this.#responseFor(head.status, headers);
    const outcome = policy.onHttpResponse(request, response);
    if (outcome instanceof Promise) this.#await(outcome, response);
    else this.#respond(response, outcome);
  }

  #responseFor(status: number, headers: string[]): PolicyResponse {
    if (!mayHaveBody(this.parts.request.method, status)) return { status, headers };
    return { status, headers, readBody: (limit) => this.#readBody(limit) };
  }

  #await(outcome: Promise<ResponseOutcome | undefined>, response: PolicyResponse): void {
    if (this.#held === null) this.#hold();
    const answer = (settled: ResponseOutcome | undefined) =>
      this.#goOn(() => this.#respond(response, settled), response.body);
    outcome.then(answer).catch((error: unknown) => {
      this.#held?.discard();
      this.#held = null;
      this.onFailed(asError(error));
    });
  }

  #respond(response: PolicyResponse, outcome: ResponseOutcome | undefined): void {
    const { request, context } = this.parts;
    const { req, res } = request;
    if (outcome !== undefined) {
      this.giveUp();
      answerInstead(request, outcome, context);
      return;
    }
    const connection = this.#connection;
    if (connection === null) return;
    if (request.awaitsContinue) closeUnlessBodyRead(req, res);
    res.writeHead(response.status, request.withCookies(response.headers), this.#head?.reason);
    this.#writer = new ResponseWriter(res, connection, sinkFor(request, response));
    this.#writer.begin();
  }

  /** Whether the upstream closed a reused connection just as the request was sent, or a new one, and it is safe to send it again. */
  #mayResend(error: Error): boolean {
    const connection = this.#connection;
    if (!(error instanceof ConnectionLost) || connection?.unanswered !== true || this.#over) return false;
    // Nothing is repeated that the other gateway may have done, unless that does no harm.
    if (error.cause instanceof GatewaySilent) return !this.#resent && this.#repeatable;
    if (connection.reused) return !this.#resent && this.#repeatable;
    return !(error.cause instanceof StreamsExhausted) && this.#mayTryOthers();
  }

  /** Whether a request that a new connection was refused for can use one that works. */
  #mayTryOthers(): boolean {
    return this.parts.pool.refusedNew() && !this.#resent && this.#repeatable;
  }

  #resend(): void {
    const { pool, from } = this.parts;
    this.#resent = true;
    this.#head = null;
    if (this.#outgoing) this.#send(this.#outgoing, pool.takeNew(from));
  }
}

/** Whether the SDK itself answers because it cannot reach the upstream; a HEAD response shows it by its few headers only. */
function isDialFailure(method: string, headers: readonly string[], body: Buffer | null): boolean {
  if (method !== 'HEAD') return body?.subarray(0, DIAL_FAILURE.length).equals(DIAL_FAILURE) === true;
  return headers.every((name, at) => at % 2 === 1 || name === 'content-length' || name === 'date');
}
