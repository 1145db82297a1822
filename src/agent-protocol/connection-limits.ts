/** What the peer may use of a connection. */
export interface ConnectionLimits {
  /** Streams that it may have open. */
  streams: number;
  /** Bytes that it may send in total. */
  received: number;
  /** Bytes of answers to its frames that it may leave unread. */
  unread: number;
}

/** Limits until the peer has authenticated: a heartbeat and one request. */
export const UNAUTHENTICATED_LIMITS: ConnectionLimits = { streams: 4, received: 16_384, unread: 65_536 };
/**
 * Limits of agents. An SDK has one RPC and one heartbeat stream at a time. The unread bytes hold what its streams carry
 * and 16,000 control frames.
 */
export const AGENT_LIMITS: ConnectionLimits = { streams: 64, received: Number.POSITIVE_INFINITY, unread: 524_288 };
/** Limits of a gateway: it opens 500 streams for clients, and others while resets of earlier ones are on their way. */
export const GATEWAY_LIMITS: ConnectionLimits = {
  streams: 2048,
  received: Number.POSITIVE_INFINITY,
  unread: 524_288,
};
