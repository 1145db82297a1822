/** What an operator can set of what the public may take of the edge. */
export interface EdgeLimits {
  /** Connections at once on each public port. */
  readonly connections: number;
  /** Milliseconds from a connection to the end of its TLS handshake. */
  readonly handshakeTimeout: number;
  /** Milliseconds until the headers of a request have arrived. */
  readonly headersTimeout: number;
  /** Bytes of a request's headers, and of a response's. */
  readonly headerBytes: number;
  /** Requests at a time by one HTTP/2 connection; 0: HTTP/2 is not offered. */
  readonly streams: number;
  /** Milliseconds without a byte after which a connection of bare bytes is cut: of tcp and tls endpoints and TLS edges. */
  readonly streamIdleTimeout: number;
}
