import type { BucketRate } from '../lib/time/token-bucket.ts';

export interface ConnectionLimits {
  /** Streams that it may have open. */
  streams: number;
  /** Bytes that it may send in total. */
  received: number;
  /** Bytes of answers to its frames that it may leave unread. */
  unread: number;
}

export const CONNECTION_LIMITS: Readonly<Record<'unauthenticated' | 'agent' | 'gateway', ConnectionLimits>> = {
  unauthenticated: { streams: 4, received: 16_384, unread: 65_536 },
  /** An SDK has one RPC and one heartbeat stream at a time. The unread bytes hold theirs and 16,000 control frames. */
  agent: { streams: 64, received: Number.POSITIVE_INFINITY, unread: 524_288 },
  /** A gateway opens 500 streams for clients, and others while resets of earlier ones are on their way. */
  gateway: { streams: 2048, received: Number.POSITIVE_INFINITY, unread: 524_288 },
};

/**
 * Glitches, as nghttp2 and HAProxy call them: data for streams that are closed or never existed, and streams that the peer
 * opens and resets. When a client leaves, some 32 frames are on their way; SDKs never reset a stream that they opened.
 */
export const GLITCHES: BucketRate = { burst: 100_000, perMs: 10 };
