/** Limits on what clients can use of the edge. */
export interface EdgeLimits {
  /** Simultaneous connections on each public port. */
  readonly connections: number;
  /** Milliseconds from accepting a connection to the end of its TLS handshake. */
  readonly handshakeTimeout: number;
  /** Milliseconds until the headers of a request have arrived. */
  readonly headersTimeout: number;
  /** Bytes of the headers of a request or a response. */
  readonly headerBytes: number;
  /** Concurrent requests on one HTTP/2 connection; 0 disables HTTP/2. */
  readonly streams: number;
  /** Milliseconds without data after which connections to tcp and tls endpoints and to TLS edges are closed. */
  readonly streamIdleTimeout: number;
}

/** Limits on what agents can use of a gateway. */
export interface AgentLimits {
  /** Simultaneous sessions. */
  readonly sessions: number;
  /** Endpoints and labelled tunnels of one session. */
  readonly endpoints: number;
  /** Connections to the upstreams of one session at a time; at most 500. */
  readonly connections: number;
  /** Bytes of options and policies of all endpoints of one authtoken. */
  readonly optionBytes: number;
  /** The share of one processor core that the policies of one authtoken may take, 0 to 1. */
  readonly policyShare: number;
}
