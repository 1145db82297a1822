import { Progress } from '../../../lib/time/deadline.ts';
import type { ClientRequest } from '../http/client-message.ts';

export interface ReceivedRequest extends Pick<ClientRequest, 'headers' | 'body' | 'complete'> {
  readonly received: number;
  /** Whether either side may speak at any time, as in gRPC. */
  readonly isDialogue: boolean;
}

interface BegunResponse {
  readonly headersSent: boolean;
  /** Whether the client was asked for the body with `100 Continue`. */
  readonly continued: boolean;
}

export class BodyProgress {
  readonly #progress: Progress;

  /** @param now milliseconds of `performance.now()`, as is the period */
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

  #isAwaited(): boolean {
    const { request, response } = this;
    // What has arrived waits for the upstream.
    if (request.complete || request.body === null || request.body.readableLength > 0) return false;
    if (request.headers.expect !== undefined && !response.continued && request.received === 0) return false;
    const isOpenEnded = request.headers['content-length'] === undefined;
    return !(isOpenEnded && (response.headersSent || request.isDialogue));
  }
}
