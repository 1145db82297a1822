/**
 * Counts the traffic of an endpoint since it came online. Counting must not slow requests down.
 */
export class EndpointTraffic {
  /** Requests; for tcp and tls endpoints, connections. */
  requests = 0;
  /** When the last of them came, in milliseconds since the Unix epoch; 0: never. */
  lastAt = 0;
  /** Requests without a complete response of the upstream, or with status 5xx. */
  errors = 0;
  /** Bytes from clients to the upstream, as its streams carry them; so is `sent`. */
  received = 0;
  /** Bytes from the upstream to clients. */
  sent = 0;

  countRequest(): void {
    this.requests += 1;
    this.lastAt = Date.now();
  }
}
