import type { ByteChannel } from '../../../agent-protocol/byte-channel.ts';
import type { ApiError } from '../../../lib/errors.ts';
import type { CompiledPolicy } from '../../../traffic-policy/engine.ts';
import type { PolicyResponse } from '../../../traffic-policy/policy-subjects.ts';
import type { ForwardFailure } from '../../../traffic-policy/steps.ts';
import type { ClientInfo } from '../../endpoints/endpoint.ts';
import type { TrafficCounters } from '../../metrics/traffic-counters.ts';
import { TARGET_FAILED } from '../connections/internal-targets.ts';
import type { ClientRequest, ClientResponse } from '../http/client-message.ts';
import { upstreamFailure, upstreamUnreachable } from '../http/edge-errors.ts';
import { answerError, closeUnlessBodyRead } from '../http/error-response.ts';
import { responseHeaders } from '../http/headers.ts';
import type { ResponseHead } from '../http/response-head.ts';
import { ConnectionLost, DIAL_FAILURE_TEXT } from '../http/upstream-failure.ts';
import type { ExchangeEvents, OutgoingRequest, UpstreamLink, UpstreamLinks } from '../upstreams/upstream-link.ts';
import type { EdgeRequest } from './edge-request.ts';
import { encoderFor } from './encoder.ts';
import { answerInstead } from './policy-outcome.ts';
import type { RequestBody } from './request-body.ts';
import { ResponseWriter } from './response-writer.ts';

/** One request on its way to an upstream. */
export interface ExchangeParts {
  req: ClientRequest;
  res: ClientResponse;
  /** What the upstream is sent; the policy has seen it. */
  request: EdgeRequest;
  body: RequestBody | null;
  policy: CompiledPolicy;
  pool: UpstreamLinks;
  from: ClientInfo;
  /** Told in place of the client that the upstream could not be reached; null when it is the client's to know. */
  onFailure: ((failure: ForwardFailure) => void) | null;
  counters: TrafficCounters;
  /** Value of the Upgrade header that is passed on. */
  upgrade?: string;
}

const CONTINUE = 100;
const BAD_GATEWAY = 502;

const TAKES_TRAILERS = /(?:^|,)[ \t]*trailers[ \t]*(?:,|$)/i;

const DIAL_FAILURE = Buffer.from(DIAL_FAILURE_TEXT);

/** Methods that change nothing, so that sending the request twice does no harm (RFC 9110, 9.2.1). */
const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE']);

/** Sends one request to the upstream and passes its response on to the client as it comes. */
export class Exchange implements ExchangeEvents {
  protected readonly parts: ExchangeParts;
  #connection: UpstreamLink | null = null;
  #outgoing: OutgoingRequest | null = null;
  #head: ResponseHead | null = null;
  #writer: ResponseWriter | null = null;
  #over = false;
  #resent = false;
  /** Whether it does no harm to send the request twice. */
  #repeatable = false;

  constructor(parts: ExchangeParts) {
    this.parts = parts;
  }

  /** @throws {Error} when the request cannot be written */
  start(): void {
    const { req, request, body, upgrade, res, pool, from } = this.parts;
    const trailers = req.headers.te !== undefined && TAKES_TRAILERS.test(req.headers.te);
    const { awaitsContinue } = request;
    this.#outgoing = { request, body: body?.framing ?? null, awaitsContinue, trailers, upgrade };
    res.on('close', () => this.#clientClosed());
    this.#repeatable = body === null && SAFE_METHODS.has(request.method);
    this.#send(this.#outgoing, pool.take(from, this.#repeatable));
  }

  #send(outgoing: OutgoingRequest, connection: UpstreamLink): void {
    this.#connection = connection;
    connection.send(outgoing, this);
  }

  onSent(): void {
    if (this.#connection) this.parts.body?.sendTo(this.#connection);
  }

  onDrain(): void {
    this.parts.body?.drain();
  }

  onInterim({ status, headers, connection, reason }: ResponseHead): void {
    const { request, res } = this.parts;
    if (status === CONTINUE && request.awaitsContinue) request.sendContinue();
    else res.writeInterim(status, responseHeaders(headers, connection, status), reason);
  }

  onHead(head: ResponseHead): void {
    this.#head = head;
    // A bad gateway's body has to be seen first: it may be the agent's word, not the upstream's.
    if (head.status !== BAD_GATEWAY) this.#begin(null);
  }

  onBody(piece: Buffer): void {
    if (this.#writer === null) this.#begin(piece);
    this.#writer?.write(piece);
  }

  onComplete(trailers: string[]): void {
    if (this.#writer === null) this.#begin(null);
    this.parts.body?.stop();
    if (this.#writer === null) return;
    this.#over = true;
    this.#writer.end(trailers);
  }

  onFailed(error: Error): void {
    const { body, pool, from } = this.parts;
    if (this.#outgoing && this.#mayResend(error)) {
      this.#resent = true;
      this.#send(this.#outgoing, pool.fresh(from));
      return;
    }
    if (this.#over) return;
    this.#over = true;
    body?.stop();
    // A response that breaks off has to look broken: the connection ends without the last chunk.
    if (this.#writer === null) this.#fail(upstreamFailure(error));
    else {
      this.parts.counters.upstreamFailures += 1;
      this.#writer.breakOff(error instanceof ConnectionLost ? error.resetCode : undefined);
    }
  }

  /** Only ever asked for by {@link UpgradeExchange}; without it, the connection takes another protocol for an error. */
  onUpgrade(_head: ResponseHead, channel: ByteChannel, _rest: Buffer): void {
    channel.abort();
  }

  /** The exchange ends here; nothing of the upstream reaches the client by it any more. */
  protected giveUp(): void {
    this.#over = true;
    this.#connection?.abort();
    this.parts.body?.stop();
  }

  /** @param status of the upstream's answer, null when there was none */
  protected tellPolicy(status: number | null): void {
    const { policy, request } = this.parts;
    policy.onUpstreamDone?.(request, status);
  }

  /** There is no response of the upstream's, and will be none. */
  #fail(error: ApiError): void {
    const { req, res, onFailure, counters } = this.parts;
    this.tellPolicy(null);
    if (onFailure) {
      onFailure(TARGET_FAILED);
      return;
    }
    counters.upstreamFailures += 1;
    answerError(req, res, error);
  }

  /** Starts the response to the client; or answers something else, and then there is no writer. */
  #begin(first: Buffer | null): void {
    const { req, res, request, policy, counters } = this.parts;
    const head = this.#head;
    const connection = this.#connection;
    if (head === null || connection === null) return;
    const headers = responseHeaders(head.headers, head.connection, head.status);
    if (head.status === BAD_GATEWAY && isDialFailure(request.method, headers, first)) {
      this.giveUp();
      this.#fail(upstreamUnreachable());
      return;
    }
    this.tellPolicy(head.status);
    const response: PolicyResponse = { status: head.status, headers };
    const outcome = policy.onHttpResponse?.(request, response);
    if (outcome !== undefined) {
      this.giveUp();
      answerInstead(req, res, outcome, counters);
      return;
    }
    if (request.awaitsContinue) closeUnlessBodyRead(req, res);
    res.writeHead(response.status, headers, head.reason);
    const sink = response.encoding === undefined ? res : encoderFor(res, response.encoding);
    this.#writer = new ResponseWriter(res, connection, sink);
    this.#writer.begin();
  }

  #clientClosed(): void {
    if (!this.#over) this.giveUp();
  }

  /** Whether the upstream closed a kept stream just when the request went out, and a repetition does no harm. */
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

/**
 * Whether this is the SDK speaking, which answers itself when it cannot reach the upstream.
 * To a HEAD request it can be told by its bare head alone.
 */
function isDialFailure(method: string, headers: readonly string[], body: Buffer | null): boolean {
  if (method !== 'HEAD') return body?.subarray(0, DIAL_FAILURE.length).equals(DIAL_FAILURE) === true;
  return headers.every((name, at) => at % 2 === 1 || name === 'content-length' || name === 'date');
}
