/** Limits on HTTP clients. Requests themselves have no time limit, as streams last. */
export interface HttpLimits {
  /** Bytes of a request's headers, and of a response's. */
  headerBytes: number;
  /** Milliseconds until the headers of a request have arrived, counted from the connection or their first byte. */
  headersTimeout: number;
  /** Milliseconds that an idle connection stays open for another request. */
  keepAliveTimeout: number;
  /** Milliseconds without a byte in either direction; also how long an HTTP/2 client may leave a response unread. */
  idleTimeout: number;
  /** Milliseconds in which an idle HTTP/2 client has to answer a PING. */
  pingTimeout: number;
  /** Concurrent connections on the plain port; beyond it, the longest idle one is closed, or else the newest. */
  connections: number;
  /** Concurrent requests on one HTTP/2 connection, of the 512 that an agent carries in total; 0 disables HTTP/2. */
  streams: number;
}

export const HTTP_LIMITS: HttpLimits = {
  headerBytes: 64 * 1024,
  headersTimeout: 30_000,
  keepAliveTimeout: 60_000,
  idleTimeout: 360_000,
  pingTimeout: 30_000,
  connections: 8192,
  streams: 100,
};

/** Milliseconds between checks of deadlines: often enough for short limits. */
export function sweepInterval({ headersTimeout, keepAliveTimeout, idleTimeout }: HttpLimits): number {
  return Math.min(5000, Math.ceil(Math.min(headersTimeout, keepAliveTimeout, idleTimeout) / 4));
}
