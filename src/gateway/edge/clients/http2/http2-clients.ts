import type { TLSSocket } from 'node:tls';
import type { Log } from '../../../../lib/log/log.ts';
import type { MemoryBudget } from '../../../../lib/memory-budget.ts';
import { DeadlineSweep } from '../../../../lib/time/deadline-sweep.ts';
import type { TrafficCounters } from '../../../metrics/traffic-counters.ts';
import type { ClientRequest, ClientResponse } from '../../http/client-message.ts';
import { type HttpLimits, sweepInterval } from '../../http/http-limits.ts';
import { MAX_HEADER_LINES } from '../../http/request-guard.ts';
import { MEMORY_SWEEP_MS } from '../client-memory.ts';
import { Http2Client } from './http2-client.ts';

export interface Http2ClientsOptions {
  limits: HttpLimits;
  memory: MemoryBudget;
  onRequest(req: ClientRequest, res: ClientResponse): void;
  counters: TrafficCounters;
  log: Log;
}

/** Bytes of one body that are buffered for a slow upstream. */
const STREAM_WINDOW = 131_072;

/** `:method`, `:scheme`, `:authority` and `:path`. */
const PSEUDO_HEADERS = 4;

/**
 * The clients' connections that use HTTP/2. Floods of frames are limited by nghttp2 (continuations, stored headers, unread
 * acknowledgements), by Node (invalid and empty frames) and by {@link Http2Client}.
 */
export class Http2Clients implements Iterable<Http2Client> {
  readonly #clients: DeadlineSweep<Http2Client>;

  constructor(private readonly options: Http2ClientsOptions) {
    this.#clients = new DeadlineSweep(Math.min(MEMORY_SWEEP_MS, sweepInterval(options.limits)));
  }

  /** Takes over a connection that has negotiated `h2`. */
  accept(socket: TLSSocket): void {
    this.#start(socket).catch((error: unknown) => {
      this.options.log.error({ err: error }, 'HTTP/2 connection failed unexpectedly');
      socket.destroy();
    });
  }

  [Symbol.iterator](): Iterator<Http2Client> {
    return this.#clients[Symbol.iterator]();
  }

  async #start(socket: TLSSocket): Promise<void> {
    // Loaded on first use: it takes 2 MB.
    const { performServerHandshake } = await import('node:http2');
    if (socket.destroyed) return;
    // Node's own TLS server sets this on its sockets; a session waits for it.
    Object.assign(socket, { secureConnecting: false });
    const { limits, memory, onRequest, counters } = this.options;
    const session = performServerHandshake(socket, {
      maxHeaderListPairs: MAX_HEADER_LINES + PSEUDO_HEADERS,
      maxSessionInvalidFrames: 100,
      settings: {
        maxConcurrentStreams: limits.streams,
        maxHeaderListSize: limits.headerBytes,
        initialWindowSize: STREAM_WINDOW,
      },
    });
    const client = new Http2Client(session, socket, { limits, memory, onRequest, counters });
    this.#clients.add(client);
    session.once('close', () => this.#clients.delete(client));
  }
}
