/** What a public client may take of the edge before it is cut off; requests themselves may last, for streams do. */
export interface HttpLimits {
  /** Bytes of a request's headers, and of a response's. */
  headerBytes: number;
  /** Milliseconds until the headers of a request have arrived, from the connection or from their first byte. */
  headersTimeout: number;
  /** Milliseconds that a connection is kept for another request. */
  keepAliveTimeout: number;
  /** Milliseconds without a byte in either direction; also those that an HTTP/2 client may leave a response unread. */
  idleTimeout: number;
  /** Milliseconds in which an HTTP/2 client that was quiet for so long has to say that it is there. */
  pingTimeout: number;
  /** Connections at once on the plain port; of more, those are closed that have been idle for longest, or the newest. */
  connections: number;
  /** Requests at a time by one HTTP/2 connection, of which an agent carries 512 in all; 0: HTTP/2 is not offered. */
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

/** How often connections that take too long are looked for: often enough for short limits. */
export function sweepInterval({ headersTimeout, keepAliveTimeout, idleTimeout }: HttpLimits): number {
  return Math.min(5000, Math.ceil(Math.min(headersTimeout, keepAliveTimeout, idleTimeout) / 4));
}
