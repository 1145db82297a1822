import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Log } from '../../../lib/log/log.ts';
import type { MemoryBudget } from '../../../lib/memory-budget.ts';
import { DeadlineSweep } from '../../../lib/time/deadline.ts';
import type { EdgeCounters } from '../../metrics/edge-counters.ts';
import type { HttpHandler } from '../http/client-message.ts';
import { MAX_HEADER_LINES } from '../http/headers.ts';
import { type HttpLimits, sweepInterval } from '../http/http-limits.ts';
import { MEMORY_SWEEP_MS } from './client-memory.ts';
import { Http1Client } from './http1/http1-client.ts';
import { Http2Client } from './http2/http2-client.ts';

export interface HttpClientsOptions {
  limits: HttpLimits;
  handler: HttpHandler;
  memory: MemoryBudget;
  counters: EdgeCounters;
  log: Log;
}

/** Bytes of one HTTP/2 body that are buffered for a slow upstream. */
const STREAM_WINDOW = 131_072;

/** Browsers send each cookie in a header of its own, so that it is compressed. They keep 180 of a site. */
const MAX_COOKIES = 200;

/** `:method`, `:scheme`, `:authority` and `:path`. */
const PSEUDO_HEADERS = 4;

/**
 * The HTTP connections to one public port. Floods of HTTP/2 frames are limited by nghttp2 (continuations, stored headers,
 * unread acknowledgements), by Node (invalid and empty frames) and by {@link Http2Client}.
 */
export class HttpClients implements Iterable<Http1Client | Http2Client> {
  readonly #clients: DeadlineSweep<Http1Client | Http2Client>;
  readonly #http1: ConstructorParameters<typeof Http1Client>[1];

  constructor(private readonly options: HttpClientsOptions) {
    this.#clients = new DeadlineSweep(Math.min(MEMORY_SWEEP_MS, sweepInterval(options.limits)));
    const seconds = Math.floor(options.limits.keepAliveTimeout / 1000);
    const keepAlive = `Connection: keep-alive\r\nKeep-Alive: timeout=${seconds}\r\n`;
    this.#http1 = { ...options, keepAlive, onDone: (client) => void this.#clients.delete(client) };
  }

  /** Takes over a connection, over TLS after its handshake. */
  accept(socket: Socket): void {
    const isHttp2 = socket instanceof TLSSocket && socket.alpnProtocol === 'h2';
    if (!isHttp2) return void this.#clients.add(new Http1Client(socket, this.#http1));
    this.#acceptHttp2(socket).catch((error: unknown) => {
      this.options.log.error({ err: error }, 'HTTP/2 connection failed unexpectedly');
      socket.destroy();
    });
  }

  /** Ends idle connections, and lets the others finish what is under way. Call it repeatedly. */
  finish(): void {
    for (const client of this) client.finish();
  }

  [Symbol.iterator](): Iterator<Http1Client | Http2Client> {
    return this.#clients[Symbol.iterator]();
  }

  async #acceptHttp2(socket: TLSSocket): Promise<void> {
    // Loaded on first use: it takes 2 MB.
    const { performServerHandshake } = await import('node:http2');
    if (socket.destroyed) return;
    // Node's own TLS server sets this on its sockets; a session waits for it.
    Object.assign(socket, { secureConnecting: false });
    const { limits } = this.options;
    const session = performServerHandshake(socket, {
      maxHeaderListPairs: MAX_HEADER_LINES + MAX_COOKIES + PSEUDO_HEADERS,
      maxSessionInvalidFrames: 100,
      settings: {
        maxConcurrentStreams: limits.streams,
        maxHeaderListSize: Math.max(limits.headerBytes, limits.readHeaderBytes),
        initialWindowSize: STREAM_WINDOW,
      },
    });
    const client = new Http2Client(session, socket, this.options);
    this.#clients.add(client);
    session.once('close', () => this.#clients.delete(client));
  }
}
