import { Progress } from '../../../lib/time/progress.ts';
import type { ClientRequest } from '../http/client-message.ts';

/** A request whose body has not arrived whole. */
export interface ReceivedRequest extends Pick<ClientRequest, 'headers' | 'body' | 'complete'> {
  /** Bytes of the body so far. */
  readonly received: number;
  /** Whether either side may speak at any time, as in gRPC. */
  readonly isDialogue: boolean;
}

interface BegunResponse {
  readonly headersSent: boolean;
  /** Whether the client was asked for the body with `100 Continue`. */
  readonly continued: boolean;
}

/** Watches whether a client sends the body of its request. */
export class BodyProgress {
  readonly #progress: Progress;

  /**
   * @param period milliseconds
   * @param now milliseconds of `performance.now()`
   */
  constructor(
    private readonly request: ReceivedRequest,
    private readonly response: BegunResponse,
    period: number,
    now: number,
  ) {
    this.#progress = new Progress(period, now, request.received);
  }

  isStalled(now: number): boolean {
    const { received } = this.request;
    if (this.#isAwaited()) return this.#progress.isStalled(now, received);
    this.#progress.restart(now, received);
    return false;
  }

  /** Whether the client, and nothing else, is waited for. */
  #isAwaited(): boolean {
    const { request, response } = this;
    // What has arrived waits for the upstream.
    if (request.complete || request.body === null || request.body.readableLength > 0) return false;
    if (request.headers.expect !== undefined && !response.continued && request.received === 0) return false;
    const isOpenEnded = request.headers['content-length'] === undefined;
    return !(isOpenEnded && (response.headersSent || request.isDialogue));
  }
}
