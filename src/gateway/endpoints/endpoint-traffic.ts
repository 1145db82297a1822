/**
 * Counts the traffic of an endpoint since it came online. Counting must not slow requests down, so each number costs one
 * addition.
 */
export class EndpointTraffic {
  /** Requests; for tcp and tls endpoints, connections. */
  requests = 0;
  /** Requests without a complete response of the upstream, or with status 5xx. */
  errors = 0;
  /** Bytes from clients to the upstream, as its streams carry them; so is `sent`. */
  received = 0;
  /** Bytes from the upstream to clients. */
  sent = 0;
}
