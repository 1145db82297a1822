import type { IncomingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import type { TrafficCounters } from '../../../metrics/traffic-counters.ts';
import type { ClientRequest, ClientResponse } from '../../http/client-message.ts';
import type { HttpLimits } from '../../http/http-limits.ts';
import { Http2Code } from '../../http/http2-code.ts';
import type { IdleClient } from '../idle-clients.ts';
import { Allowance } from './http2-allowance.ts';
import { Http2Request } from './http2-request.ts';
import { Http2Response } from './http2-response.ts';

/**
 * Streams that the client resets. Each may have cost a request to an upstream, which rapid reset attacks exploit
 * (CVE-2023-44487). Leaving a page with many images resets about a hundred.
 */
const RESETS = { burst: 200, perSecond: 20 };

/** PING and SETTINGS frames; gRPC sends a PING per round trip to measure bandwidth. */
const CONTROL_FRAMES = { burst: 1000, perSecond: 100 };

/** Bytes of all bodies in flight to the gateway; those that wait for a slow upstream do not count. */
const CONNECTION_WINDOW = 1_048_576;

/** Milliseconds for the client to read the reason why its connection ends. */
const LINGER_MS = 1000;

export interface Http2ClientOptions {
  limits: HttpLimits;
  onRequest(req: ClientRequest, res: ClientResponse): void;
  counters: TrafficCounters;
}

export class Http2Client implements IdleClient {
  readonly #resets: Allowance;
  readonly #controlFrames: Allowance;
  readonly #responses = new Set<Http2Response>();
  #idleSince = performance.now();
  #hasRequested = false;

  constructor(
    private readonly session: ServerHttp2Session,
    private readonly socket: TLSSocket,
    private readonly options: Http2ClientOptions,
  ) {
    this.#resets = new Allowance(RESETS.burst, RESETS.perSecond, this.#idleSince);
    this.#controlFrames = new Allowance(CONTROL_FRAMES.burst, CONTROL_FRAMES.perSecond, this.#idleSince);
    session.setLocalWindowSize(CONNECTION_WINDOW);
    // Otherwise a half-closed socket, useless in HTTP/2, would stay open with all its requests.
    socket.on('end', () => session.destroy());
    session
      // An error is followed by 'close'.
      .on('error', () => {})
      .on('ping', () => this.#countControlFrame())
      .on('remoteSettings', () => this.#countControlFrame())
      .on('stream', (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, _flags: number, raw: string[]) =>
        this.#serve(stream, headers, raw),
      );
  }

  get idleSince(): number | null {
    return this.#responses.size > 0 || this.socket.destroyed ? null : this.#idleSince;
  }

  destroy(): void {
    this.socket.destroy();
  }

  /**
   * Pings the client whenever it has been idle for too long. Responses may take longer, as streaming gRPC calls do, unless
   * the client is gone.
   */
  watch(): void {
    const { idleTimeout, pingTimeout } = this.options.limits;
    this.session.setTimeout(idleTimeout, () => {
      const timer = setTimeout(() => this.socket.destroy(), pingTimeout).unref();
      const sent = this.session.ping((error) => {
        clearTimeout(timer);
        if (error === null) this.session.setTimeout(idleTimeout);
      });
      if (!sent) this.socket.destroy();
    });
  }

  /**
   * Ends responses that the client does not read, and a connection that has carried no request for too long. Bytes that
   * trickle in do not count as use.
   */
  checkTime(now: number): void {
    const { headersTimeout, keepAliveTimeout, idleTimeout } = this.options.limits;
    for (const response of this.#responses) if (response.isStalled(now, idleTimeout)) response.destroy();
    if (this.#responses.size > 0 || now - this.#idleSince < (this.#hasRequested ? keepAliveTimeout : headersTimeout))
      return;
    this.#end(Http2Code.noError);
  }

  #serve(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, raw: readonly string[]): void {
    const { onRequest, counters } = this.options;
    const response = new Http2Response(stream, headers[':method'] === 'HEAD', counters);
    this.#responses.add(response);
    this.#hasRequested = true;
    stream.on('error', () => {}).on('close', () => this.#closed(stream, response));
    onRequest(new Http2Request(stream, headers, raw, this.socket), response);
  }

  #closed(stream: ServerHttp2Stream, response: Http2Response): void {
    const now = performance.now();
    this.#responses.delete(response);
    this.#idleSince = now;
    if (stream.rstCode !== Http2Code.noError && !this.#resets.take(now)) this.#end(Http2Code.enhanceYourCalm);
  }

  #countControlFrame(): void {
    if (!this.#controlFrames.take(performance.now())) this.#end(Http2Code.enhanceYourCalm);
  }

  #end(code: number): void {
    const socket = this.socket;
    this.session.destroy(undefined, code);
    const timer = setTimeout(() => socket.destroy(), LINGER_MS).unref();
    socket.once('close', () => clearTimeout(timer));
  }
}
