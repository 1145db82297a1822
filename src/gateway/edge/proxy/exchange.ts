import type { ByteChannel } from '../../../agent-protocol/byte-channel.ts';
import type { ApiError } from '../../../lib/errors.ts';
import type { PolicyResponse } from '../../../traffic-policy/policy-subjects.ts';
import type { ResponseOutcome } from '../../../traffic-policy/steps.ts';
import type { ClientInfo } from '../../endpoints/endpoint.ts';
import type { EdgeCounters } from '../../metrics/edge-counters.ts';
import { TARGET_FAILED } from '../connections/connect-phase.ts';
import {
  asError,
  ConnectionLost,
  DIAL_FAILURE_TEXT,
  upstreamFailure,
  upstreamUnreachable,
} from '../http/edge-errors.ts';
import { answerError, closeUnlessBodyRead } from '../http/error-response.ts';
import { mayHaveBody, responseHeaders } from '../http/headers.ts';
import type { ResponseHead } from '../upstreams/response-parser.ts';
import { requestHead } from '../upstreams/upstream-connection.ts';
import type { ExchangeEvents, OutgoingRequest, UpstreamLink, UpstreamLinks } from '../upstreams/upstream-link.ts';
import type { EdgeRequest } from './edge-request.ts';
import { HeldResponse } from './held-response.ts';
import { answerInstead } from './policy-outcome.ts';
import { bodyMemory } from './request-body.ts';
import { ResponseWriter, sinkFor } from './response-writer.ts';

export interface ExchangeParts {
  request: EdgeRequest;
  pool: UpstreamLinks;
  from: ClientInfo;
  counters: EdgeCounters;
  upgrade?: string;
}

const CONTINUE = 100;
const BAD_GATEWAY = 502;
const FIRST_SERVER_ERROR = 500;

const TAKES_TRAILERS = /(?:^|,)[ \t]*trailers[ \t]*(?:,|$)/i;

const DIAL_FAILURE = Buffer.from(DIAL_FAILURE_TEXT);

/** Methods that may safely be sent twice (RFC 9110, 9.2.1). */
const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE']);

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
    const trailers = req.headers.te !== undefined && TAKES_TRAILERS.test(req.headers.te);
    const { awaitsContinue } = request;
    this.#outgoing = { request, body: body?.framing ?? null, awaitsContinue, trailers, upgrade };
    request.watch?.sentUpstream(request.target, requestHead(this.#outgoing));
    res.on('close', () => this.#over || this.giveUp());
    this.#repeatable = body === null && SAFE_METHODS.has(request.method);
    this.#send(this.#outgoing, pool.take(from, this.#repeatable));
  }

  #send(outgoing: OutgoingRequest, connection: UpstreamLink): void {
    this.#connection = connection;
    connection.send(outgoing, this);
  }

  onSent(): void {
    if (this.#connection) this.parts.request.body?.sendTo(this.#connection);
  }

  onDrain(): void {
    this.parts.request.body?.drain();
  }

  onInterim({ status, headers, connection, reason }: ResponseHead): void {
    const { request } = this.parts;
    if (status === CONTINUE && request.awaitsContinue) request.sendContinue();
    else request.res.writeInterim(status, responseHeaders(headers, connection, status), reason);
  }

  get isOver(): boolean {
    return this.#over;
  }

  onHead(head: ResponseHead): void {
    this.#head = head;
    if (this.parts.request.policy.shouldYield?.() !== true) return void this.#takeHead();
    // The policies of the authtoken have run for long in this turn: the response phase runs in a later one.
    this.#hold();
    setImmediate(this.#onTurn);
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
    const { request, pool, from, counters } = this.parts;
    if (this.#outgoing && this.#mayResend(error)) {
      this.#resent = true;
      this.#send(this.#outgoing, pool.takeNew(from));
      return;
    }
    if (this.#over) return;
    this.#over = true;
    request.body?.stop();
    // An incomplete response has to look incomplete: the connection ends without the last chunk.
    if (this.#writer === null) this.#fail(upstreamFailure(error));
    else {
      if (!counters.isLink(request.req.socket)) counters.upstreamFailures += 1;
      request.endpoint.traffic.errors += 1;
      this.#writer.abort(error instanceof ConnectionLost ? error.resetCode : undefined);
    }
  }

  #takeHead(): void {
    // Wait for the body of a 502: it may come from the agent, not from the upstream.
    if (this.#head?.status !== BAD_GATEWAY) this.#begin(null);
  }

  /** Holds what arrives from now on, and lets the upstream wait. */
  #hold(): void {
    this.#held ??= new HeldResponse(() => bodyMemory(this.parts.request.req.socket));
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
  }

  protected giveUp(): void {
    this.#over = true;
    this.#held?.discard();
    if (!this.#received) this.#connection?.abort();
    this.parts.request.body?.stop();
  }

  /** @param status of the upstream's response; null without one */
  protected notifyPolicy(status: number | null): void {
    const { request } = this.parts;
    request.policy.onUpstreamDone?.(request, status);
  }

  #fail(error: ApiError): void {
    const { request, counters } = this.parts;
    request.endpoint.traffic.errors += 1;
    this.notifyPolicy(null);
    if (request.onFailure) {
      request.onFailure(TARGET_FAILED);
      return;
    }
    counters.upstreamFailures += 1;
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
      this.giveUp();
      this.#fail(upstreamUnreachable());
      return;
    }
    if (head.status >= FIRST_SERVER_ERROR) request.endpoint.traffic.errors += 1;
    this.notifyPolicy(head.status);
    if (request.responseHeaders !== undefined) headers.push(...request.responseHeaders);
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
    const { request, counters } = this.parts;
    const { req, res } = request;
    if (outcome !== undefined) {
      this.giveUp();
      answerInstead(request, outcome, counters);
      return;
    }
    const connection = this.#connection;
    if (connection === null) return;
    if (request.awaitsContinue) closeUnlessBodyRead(req, res);
    res.writeHead(response.status, response.headers, this.#head?.reason);
    this.#writer = new ResponseWriter(res, connection, sinkFor(request, response));
    this.#writer.begin();
  }

  /** Whether the upstream closed a reused connection just as the request was sent, and it is safe to send it again. */
  #mayResend(error: Error): boolean {
    return (
      error instanceof ConnectionLost &&
      this.#connection?.reused === true &&
      this.#connection.unanswered &&
      !this.#over &&
      !this.#resent &&
      this.#repeatable
    );
  }
}

/** Whether the SDK itself answers because it cannot reach the upstream; a HEAD response shows it by its few headers only. */
function isDialFailure(method: string, headers: readonly string[], body: Buffer | null): boolean {
  if (method !== 'HEAD') return body?.subarray(0, DIAL_FAILURE.length).equals(DIAL_FAILURE) === true;
  return headers.every((name, at) => at % 2 === 1 || name === 'content-length' || name === 'date');
}
