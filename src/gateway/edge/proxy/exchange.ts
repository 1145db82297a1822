import type { ByteChannel } from '../../../agent-protocol/byte-channel.ts';
import type { ApiError } from '../../../lib/errors.ts';
import type { PolicyResponse } from '../../../traffic-policy/policy-subjects.ts';
import type { ClientInfo } from '../../endpoints/endpoint.ts';
import type { TrafficCounters } from '../../metrics/traffic-counters.ts';
import { TARGET_FAILED } from '../connections/connect-phase.ts';
import { ConnectionLost, DIAL_FAILURE_TEXT, upstreamFailure, upstreamUnreachable } from '../http/edge-errors.ts';
import { answerError, closeUnlessBodyRead } from '../http/error-response.ts';
import { responseHeaders } from '../http/headers.ts';
import type { ResponseHead } from '../upstreams/response-parser.ts';
import { requestHead } from '../upstreams/upstream-connection.ts';
import type { ExchangeEvents, OutgoingRequest, UpstreamLink, UpstreamLinks } from '../upstreams/upstream-link.ts';
import type { EdgeRequest } from './edge-request.ts';
import { answerInstead } from './policy-outcome.ts';
import { encoderFor, ResponseWriter } from './response-writer.ts';

export interface ExchangeParts {
  request: EdgeRequest;
  pool: UpstreamLinks;
  from: ClientInfo;
  counters: TrafficCounters;
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
  /** What has arrived while the response waits for its turn; null while it does not wait. */
  #arrived: (() => void)[] | null = null;
  #paused: UpstreamLink | null = null;
  readonly #onTurn = (): void => {
    if (!this.#over && this.parts.request.policy.shouldYield?.() === true) {
      setImmediate(this.#onTurn);
      return;
    }
    const arrived = this.#arrived ?? [];
    const paused = this.#paused;
    this.#arrived = null;
    this.#paused = null;
    for (const arrive of arrived) if (!this.#over) arrive();
    if (!this.#over) paused?.resume();
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

  onHead(head: ResponseHead): void {
    if (this.parts.request.policy.shouldYield?.() === true) {
      this.#wait(() => this.onHead(head));
      return;
    }
    this.#head = head;
    // Wait for the body of a 502: it may come from the agent, not from the upstream.
    if (head.status !== BAD_GATEWAY) this.#begin(null);
  }

  onBody(piece: Buffer): void {
    if (this.#arrived !== null) {
      this.#arrived.push(() => this.onBody(piece));
      return;
    }
    if (this.#writer === null) this.#begin(piece);
    this.#writer?.write(piece);
  }

  onComplete(trailers: string[]): void {
    if (this.#arrived !== null) {
      this.#arrived.push(() => this.onComplete(trailers));
      // It may serve another exchange from now on.
      this.#paused = null;
      return;
    }
    if (this.#writer === null) this.#begin(null);
    this.parts.request.body?.stop();
    if (this.#writer === null) return;
    this.#over = true;
    this.#writer.end(trailers);
  }

  onFailed(error: Error): void {
    if (this.#arrived !== null) {
      this.#arrived.push(() => this.onFailed(error));
      return;
    }
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
      counters.upstreamFailures += 1;
      request.endpoint.traffic.errors += 1;
      this.#writer.abort(error instanceof ConnectionLost ? error.resetCode : undefined);
    }
  }

  /** The policies of the authtoken have run for long in this turn: the response phase runs in a later one. */
  #wait(begin: () => void): void {
    this.#paused = this.#connection;
    this.#paused?.pause();
    this.#arrived = [begin];
    setImmediate(this.#onTurn);
  }

  /** Overridden by {@link UpgradeExchange}; others never request an upgrade. */
  onUpgrade(_head: ResponseHead, channel: ByteChannel, _rest: Buffer): void {
    channel.abort();
  }

  protected giveUp(): void {
    this.#over = true;
    this.#connection?.abort();
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

  /** Starts the response to the client. When something else is answered instead, there is no writer. */
  #begin(first: Buffer | null): void {
    const { request, counters } = this.parts;
    const { req, res, policy } = request;
    const head = this.#head;
    const connection = this.#connection;
    if (head === null || connection === null) return;
    const headers = responseHeaders(head.headers, head.connection, head.status);
    if (head.status === BAD_GATEWAY && isDialFailure(request.method, headers, first)) {
      this.giveUp();
      this.#fail(upstreamUnreachable());
      return;
    }
    if (head.status >= FIRST_SERVER_ERROR) request.endpoint.traffic.errors += 1;
    this.notifyPolicy(head.status);
    if (request.responseHeaders !== undefined) headers.push(...request.responseHeaders);
    const response: PolicyResponse = { status: head.status, headers };
    const outcome = policy.onHttpResponse?.(request, response);
    if (outcome !== undefined) {
      this.giveUp();
      answerInstead(request, outcome, counters);
      return;
    }
    if (request.awaitsContinue) closeUnlessBodyRead(req, res);
    res.writeHead(response.status, headers, head.reason);
    const sink = response.compression === undefined ? res : encoderFor(res, response.compression);
    this.#writer = new ResponseWriter(res, connection, sink);
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
