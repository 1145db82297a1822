import type { ByteChannel } from '../../../agent-protocol/byte-channel.ts';
import type { PolicyRequest } from '../../../traffic-policy/policy-subjects.ts';
import type { ClientInfo } from '../../endpoints/endpoint.ts';
import type { ResponseHead } from '../http/response-head.ts';
import type { ResponseEvents } from './response-parser.ts';

/** How requests to an upstream are bounded; milliseconds and bytes. */
export interface UpstreamLimits {
  /** Until the head of a response has arrived, counted from the last of the request that could be sent. */
  responseTimeout: number;
  /** How long an unused stream is kept for the next request. */
  keepAlive: number;
  maxHeaderSize: number;
  /** How long a request waits for a stream when the agent carries as many as it can. */
  streamWait: number;
}

/** A request as it leaves. */
export interface OutgoingRequest {
  /** As the policy left it. */
  readonly request: PolicyRequest;
  /** How the body is delimited; null when there is none. A length is among the headers. */
  readonly body: 'length' | 'chunked' | null;
  /** Whether the client waits for the upstream's leave to send the body. */
  readonly awaitsContinue: boolean;
  /** Whether the client takes trailers. */
  readonly trailers: boolean;
  /** The protocol that the client asks for and the upstream may answer with. */
  readonly upgrade: string | undefined;
}

/** What becomes of a request. After `onComplete`, `onUpgrade` or `onFailed` nothing follows. */
export interface ExchangeEvents extends ResponseEvents {
  /** The head has left; the body may follow. */
  onSent(): void;
  /** There is room for more of the body. */
  onDrain(): void;
  /** @param rest what came behind the head already */
  onUpgrade(head: ResponseHead, channel: ByteChannel, rest: Buffer): void;
  onFailed(error: Error): void;
}

/** What takes one request to the upstream and its response back. */
export interface UpstreamLink {
  /** Whether it goes by a connection that has answered a request before, and may have gone stale unnoticed. */
  readonly reused: boolean;
  /** Whether the request has had no answer at all yet. */
  readonly unanswered: boolean;
  /**
   * Sends a request, as soon as there is a connection.
   *
   * @throws {Error} when the request cannot be written
   */
  send(request: OutgoingRequest, user: ExchangeEvents): void;
  /**
   * Sends a piece of the request's body.
   *
   * @returns false when the writer should wait for `onDrain`
   */
  write(bytes: Buffer): boolean;
  /**
   * The body is complete.
   *
   * @param trailers flat name, value list
   */
  finishRequest(trailers: readonly string[]): void;
  /** Slows the response down. */
  pause(): void;
  resume(): void;
  /** Gives the request up; its user is told nothing any more. */
  abort(): void;
}

/** The ways to one endpoint's upstream. */
export interface UpstreamLinks {
  /**
   * One for one request.
   *
   * @param repeatable whether the request may be sent again should the connection turn out to be stale
   */
  take(from: ClientInfo, repeatable: boolean): UpstreamLink;
  /** One that certainly opens a new connection. */
  fresh(from: ClientInfo): UpstreamLink;
  /** Ends all of them; requests under way fail with the reason. */
  destroy(reason: Error): void;
}
