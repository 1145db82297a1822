import type { ByteChannel } from '../../../agent-protocol/byte-channel.ts';
import type { ResponseHead } from '../../../lib/http/response-head.ts';
import type { PolicyRequest } from '../../../traffic-policy/policy-subjects.ts';
import type { ClientInfo } from '../../endpoints/online-endpoint.ts';
import type { ResponseEvents } from './response-parser.ts';

export interface UpstreamLimits {
  /**
   * Milliseconds until the head of a response has arrived, counted from the last part of the request that was sent. Requests
   * have another one where their policy says so.
   */
  responseTimeout: number;
  keepAlive: number;
  maxHeaderSize: number;
  /** How long a request waits for a stream when the agent has reached its limit. */
  streamWait: number;
}

export interface OutgoingRequest {
  readonly request: PolicyRequest;
  /** How the body is delimited, with the length in the headers; null without a body. */
  readonly body: 'length' | 'chunked' | null;
  /** Whether the client waits for the upstream's `100 Continue`. */
  readonly awaitsContinue: boolean;
  readonly trailers: boolean;
  readonly upgrade: string | undefined;
}

/** Receives the progress of a request. `onComplete`, `onUpgrade` or `onFailed` is the last event. */
export interface ExchangeEvents extends ResponseEvents {
  /** The head has been sent; the body may follow. */
  onSent(): void;
  onDrain(): void;
  /** @param rest bytes that followed the head */
  onUpgrade(head: ResponseHead, channel: ByteChannel, rest: Buffer): void;
  onFailed(error: Error): void;
  /** No answer has begun, and the agent does not answer at the moment. Called repeatedly. */
  onStalled(): void;
}

export interface UpstreamLink {
  /** Whether the connection has answered a request before, and may have become stale. */
  readonly reused: boolean;
  readonly unanswered: boolean;
  /** @throws {Error} when the request contains invalid characters */
  send(request: OutgoingRequest, user: ExchangeEvents): void;
  /** @returns false when the writer should wait for `onDrain` */
  write(bytes: Buffer): boolean;
  finishRequest(trailers: readonly string[]): void;
  pause(): void;
  resume(): void;
  /** Aborts the request without notifying its user. */
  abort(): void;
}

export interface UpstreamLinks {
  /** @param repeatable whether the request may be sent again if the connection is stale */
  take(from: ClientInfo, repeatable: boolean): UpstreamLink;
  takeNew(from: ClientInfo): UpstreamLink;
  /** A connection that was upgraded, and so is no longer one of these, has ended. */
  upgradeEnded(): void;
  /**
   * A new connection was reset or refused: the upstream may bear no more of them.
   *
   * @returns whether others work, so that the request may be sent again, on one of them
   */
  refusedNew(): boolean;
  /** Closes idle connections, and the others when their requests are answered. */
  retire(): void;
  /** Closes all connections; pending requests fail with the reason. */
  destroy(reason: Error): void;
}
