import { PROGRESS_MS } from '../../../lib/time/deadline.ts';

/** Limits on HTTP clients. A request as a whole has no time limit, as streams last. */
export interface HttpLimits {
  /** Bytes of a request's headers, and of a response's. */
  headerBytes: number;
  /**
   * Bytes of a request's headers that are read. Longer ones than {@link headerBytes} are not passed on: browsers with too many
   * cookies get a page, and the gateway's own services get such requests without the cookies of others.
   */
  readHeaderBytes: number;
  /** Milliseconds until the headers of a request have arrived, counted from the connection or their first byte. */
  headersTimeout: number;
  /** Milliseconds that an idle connection stays open for another request. */
  keepAliveTimeout: number;
  /** Milliseconds in which a client that is waited for must send or take some bytes; see `Progress`. */
  progressTimeout: number;
  /** Milliseconds without a byte in either direction. */
  idleTimeout: number;
  /** Milliseconds in which an HTTP/2 client has to answer a PING, unless other bytes move. */
  pingTimeout: number;
  /** Bytes that all clients of the process may make the gateway hold; left out: a share of the heap. */
  memory?: number;
  /** Concurrent connections on the plain port; beyond it, the longest idle one is closed, or else the newest. */
  connections: number;
  /** Concurrent requests on one HTTP/2 connection, of the 512 that an agent carries in total; 0 disables HTTP/2. */
  streams: number;
}

export const HTTP_LIMITS: HttpLimits = {
  headerBytes: 64 * 1024,
  // Chromium and Firefox keep 180 cookies of a site, of 4 KiB each.
  readHeaderBytes: 1024 * 1024,
  headersTimeout: 30_000,
  keepAliveTimeout: 60_000,
  progressTimeout: PROGRESS_MS,
  idleTimeout: 360_000,
  pingTimeout: 15_000,
  connections: 8192,
  streams: 100,
};

/** Milliseconds between checks of deadlines: often enough for short limits. */
export function sweepInterval(limits: HttpLimits): number {
  const { headersTimeout, keepAliveTimeout, progressTimeout, idleTimeout } = limits;
  return Math.min(5000, Math.ceil(Math.min(headersTimeout, keepAliveTimeout, progressTimeout, idleTimeout) / 4));
}
