import { STATUS_CODES } from 'node:http';
import type { ClientHttp2Session, ClientHttp2Stream, IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http2';
import { nameAt, valueAt } from '../../../lib/http/header-fields.ts';
import { MalformedMessage, type ResponseHead } from '../../../lib/http/response-head.ts';
import { DeadlineSweep } from '../../../lib/time/deadline.ts';
import type { ClientInfo, GatewayEndpoint } from '../../endpoints/online-endpoint.ts';
import { asError, ConnectionLost, ResponseTimeout } from '../http/edge-errors.ts';
import { headerValue, passableTrailers } from '../http/headers.ts';
import { Http2Code, http2Headers } from '../http/http2-headers.ts';
import { Http2UpstreamSession } from './http2-upstream-session.ts';
import { InterimCount } from './response-parser.ts';
import { StreamQueue } from './stream-queue.ts';
import type { ExchangeEvents, OutgoingRequest, UpstreamLimits, UpstreamLink, UpstreamLinks } from './upstream-link.ts';

const END_STREAM = 1;
const NO_TRAILERS: string[] = [];

class Http2UpstreamStream implements UpstreamLink {
  reused = false;
  unanswered = true;
  #session: Http2UpstreamSession | null = null;
  #stream: ClientHttp2Stream | null = null;
  #user: ExchangeEvents | null = null;
  #wholeRequestSent = false;
  #trailers = NO_TRAILERS;
  #isHead = false;
  readonly #interim: InterimCount;
  #missing = 0;
  #paused = false;
  /** Milliseconds that the upstream has to answer. */
  #responseTimeout = 0;
  /** When the response's head, or reading the request, is overdue; in milliseconds of `performance.now()`. */
  #deadline = Number.POSITIVE_INFINITY;

  /** @param needsNewSession whether the request must not reuse a session */
  constructor(
    readonly from: ClientInfo,
    readonly needsNewSession: boolean,
    private readonly owner: Http2UpstreamPool,
  ) {
    this.#interim = new InterimCount(owner.limits.maxHeaderSize);
  }

  send(outgoing: OutgoingRequest, user: ExchangeEvents): void {
    const session = this.owner.sessionFor(this);
    const headers = requestHeaders(outgoing, session.scheme);
    this.#user = user;
    this.#session = session;
    this.#isHead = outgoing.request.method === 'HEAD';
    this.#responseTimeout = outgoing.request.upstream?.response_timeout ?? this.owner.limits.responseTimeout;
    this.reused = session.used;
    this.#deadline = performance.now() + this.#responseTimeout;
    session.opened
      .then((opened) => this.#start(opened, headers, outgoing.body !== null))
      .catch((error: unknown) => this.fail(asError(error)));
  }

  write(bytes: Buffer): boolean {
    const room = this.#stream?.write(bytes) ?? false;
    if (!room) this.#deadline = performance.now() + this.#responseTimeout;
    return room;
  }

  finishRequest(trailers: readonly string[]): void {
    const stream = this.#stream;
    this.#requestSent();
    if (stream === null || stream.destroyed) return;
    const fields = http2Headers(passableTrailers(trailers).flat());
    stream.once('wantTrailers', () => stream.sendTrailers(fields));
    stream.end();
  }

  pause(): void {
    this.#paused = true;
    this.#stream?.pause();
  }

  resume(): void {
    this.#paused = false;
    this.#stream?.resume();
  }

  abort(): void {
    this.#user = null;
    this.#session?.release();
    this.#session = null;
    if (this.#stream && !this.#stream.destroyed) this.#stream.close(Http2Code.cancel);
    this.#stream = null;
    this.owner.remove(this);
  }

  fail(error: Error): void {
    const user = this.#user;
    this.abort();
    user?.onFailed(error);
  }

  checkTime(now: number): void {
    if (this.unanswered && this.owner.isStalled) this.#user?.onStalled();
    if (now < this.#deadline) return;
    if (this.unanswered) this.fail(new ResponseTimeout(this.#responseTimeout));
    else if (!this.#wholeRequestSent) this.fail(new ConnectionLost(new Error('upstream does not read the request')));
  }

  #start(session: ClientHttp2Session, headers: OutgoingHttpHeaders, hasBody: boolean): void {
    // The client may have disconnected while the session was being opened.
    if (this.#user === null) return;
    if (session.closed || session.destroyed) throw new ConnectionLost();
    // Without `waitForTrailers`, Node would end a request in an orderly way before it cancels it.
    const stream = session.request(headers, { endStream: !hasBody, waitForTrailers: hasBody });
    this.#stream = stream;
    this.#listen(stream, session);
    if (!hasBody) {
      this.#requestSent();
      return;
    }
    // The upstream may wait for the whole body before it responds.
    this.#deadline = Number.POSITIVE_INFINITY;
    this.#user.onSent();
  }

  #listen(stream: ClientHttp2Stream, session: ClientHttp2Session): void {
    let failure: Error | undefined;
    stream
      .on('headers', (headers: IncomingHttpHeaders, _flags: number, raw: string[]) =>
        this.#onInterim(headOf(headers, raw)),
      )
      .on('response', (headers: IncomingHttpHeaders, flags: number, raw: string[]) =>
        this.#onResponse(stream, headOf(headers, raw), flags),
      )
      .on('trailers', (_trailers: object, _flags: number, raw: string[]) => {
        this.#trailers = raw;
      })
      .on('drain', () => {
        this.#deadline = Number.POSITIVE_INFINITY;
        this.#notify((user) => user.onDrain());
      })
      .on('end', () => this.#complete())
      .on('error', (error: Error) => {
        failure = error;
      })
      .on('close', () => {
        // When the session has ended, the reset code is our own.
        const resetCode = session.destroyed ? undefined : stream.rstCode || undefined;
        this.fail(this.#session?.failure ?? new ConnectionLost(failure, resetCode));
      });
  }

  #onInterim(head: ResponseHead): void {
    try {
      this.#interim.add(head);
      if (head.status < 100 || head.status === 101) throw invalidStatus(head);
    } catch (error) {
      this.fail(asError(error));
      return;
    }
    this.#notify((user) => user.onInterim(head));
  }

  #onResponse(stream: ClientHttp2Stream, head: ResponseHead, flags: number): void {
    this.unanswered = false;
    this.#session?.answered();
    if (head.status < 200 || head.status > 599) {
      this.fail(invalidStatus(head));
      return;
    }
    if (!this.#isHead && head.status !== 204 && head.status !== 304) this.#missing = head.length;
    this.#notify((user) => user.onHead(head));
    // Complete at once, so that a response without a body leaves as one frame again.
    if ((flags & END_STREAM) !== 0) this.#complete();
    stream.on('data', (piece: Buffer) => {
      this.#missing -= piece.length;
      this.#notify((user) => user.onBody(piece));
    });
    if (this.#paused) stream.pause();
  }

  #complete(): void {
    // A reset stream also emits 'end', before its error is known.
    if (this.#user === null || this.unanswered || (this.#stream?.rstCode ?? 0) !== Http2Code.noError) return;
    if (this.#missing > 0) {
      // A clean end before the announced length: an HTTP/1.1 client would read the next response as the rest of this one.
      this.fail(new ConnectionLost());
      return;
    }
    const trailers = this.#trailers;
    this.#notify((user) => user.onComplete(trailers));
    this.#user = null;
    if (this.#wholeRequestSent) this.#stream = null;
    this.abort();
  }

  /** Reports an event to the user; an exception costs one request, never the session. */
  #notify(event: (user: ExchangeEvents) => void): void {
    if (this.#user === null) return;
    try {
      event(this.#user);
    } catch (error) {
      this.fail(asError(error));
    }
  }

  #requestSent(): void {
    this.#wholeRequestSent = true;
    this.#deadline = performance.now() + this.#responseTimeout;
  }
}

function requestHeaders({ request, awaitsContinue, trailers }: OutgoingRequest, scheme: string): OutgoingHttpHeaders {
  const headers = http2Headers(request.headers);
  headers[':method'] = request.method;
  headers[':scheme'] = scheme;
  headers[':authority'] = headerValue(request.headers, 'host') ?? '';
  headers[':path'] = request.target;
  if (awaitsContinue) headers.expect = '100-continue';
  if (trailers) headers.te = 'trailers';
  return headers;
}

/** nghttp2 accepts any three digits. */
function invalidStatus({ status }: ResponseHead): MalformedMessage {
  return new MalformedMessage(`invalid status ${status}`);
}

function headOf(headers: IncomingHttpHeaders, raw: readonly string[]): ResponseHead {
  const status = Number(headers[':status']);
  const length = headers['content-length'];
  return {
    status,
    reason: STATUS_CODES[status] ?? '',
    headers: fieldsOf(raw),
    framing: length === undefined ? 'chunked' : 'length',
    length: Number(length ?? 0),
    keepAlive: true,
    keepAliveSeconds: null,
    connection: undefined,
  };
}

function fieldsOf(raw: readonly string[]): string[] {
  const fields: string[] = [];
  for (let at = 0; at < raw.length; at += 2) {
    if (!nameAt(raw, at).startsWith(':')) fields.push(nameAt(raw, at), valueAt(raw, at));
  }
  return fields;
}

const SWEEP_MS = 250;

/** The HTTP/2 sessions to one endpoint's upstream; each carries many requests at a time. */
export class Http2UpstreamPool implements UpstreamLinks {
  readonly #queue: StreamQueue;
  readonly #sessions = new DeadlineSweep<Http2UpstreamSession>(SWEEP_MS);
  readonly #streams = new DeadlineSweep<Http2UpstreamStream>(SWEEP_MS);

  constructor(
    private readonly endpoint: GatewayEndpoint,
    readonly limits: UpstreamLimits,
  ) {
    this.#queue = new StreamQueue(limits.streamWait);
  }

  get isStalled(): boolean {
    return this.endpoint.isStalled ?? false;
  }

  take(from: ClientInfo): Http2UpstreamStream {
    return new Http2UpstreamStream(from, false, this);
  }

  takeNew(from: ClientInfo): Http2UpstreamStream {
    return new Http2UpstreamStream(from, true, this);
  }

  /** @throws when no session can be opened */
  sessionFor(stream: Http2UpstreamStream): Http2UpstreamSession {
    const session =
      (stream.needsNewSession ? undefined : this.#sharedWith(stream.from)) ?? this.#newSession(stream.from);
    session.claim();
    this.#streams.add(stream);
    return session;
  }

  remove(stream: Http2UpstreamStream): void {
    this.#streams.delete(stream);
  }

  /** Upstreams that speak HTTP/2 need one connection. */
  refusedNew(): boolean {
    return false;
  }

  /** HTTP/2 has no upgrades. */
  upgradeEnded(): void {}

  /** Agents that retire their endpoints have no HTTP/2 upstreams; these sessions end with the agent's. */
  retire(): void {}

  destroy(reason: Error): void {
    for (const stream of [...this.#streams]) stream.fail(reason);
    for (const session of [...this.#sessions]) session.destroy();
  }

  /** A session with a PROXY header takes requests of that client's connection only. */
  #sharedWith({ address, proxyHeader }: ClientInfo): Http2UpstreamSession | undefined {
    for (const session of this.#sessions) {
      if (session.free && (!proxyHeader || session.from.address === address)) return session;
    }
    return undefined;
  }

  #newSession(from: ClientInfo): Http2UpstreamSession {
    const onOver = () => this.#sessions.delete(session);
    const session: Http2UpstreamSession = new Http2UpstreamSession(
      { endpoint: this.endpoint, limits: this.limits, queue: this.#queue },
      from,
      onOver,
    );
    this.#sessions.add(session);
    return session;
  }
}
