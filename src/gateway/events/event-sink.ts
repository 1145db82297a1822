import type { EventRow } from '../store/events.ts';

/** What takes a destination's events. */
export interface EventSink {
  /** How many events it takes at a time, at most. */
  readonly batch: number;
  /** Milliseconds that an attempt may take; left out: as much as is usual. */
  readonly timeoutMs?: number;
  /**
   * Sends events in order; resolves when all are acknowledged.
   * @returns what the destination has answered, in words
   * @throws {NotAccepted} when the destination has answered
   * @throws Error that says what has failed, without secrets
   */
  send(events: readonly EventRow[], signal: AbortSignal): Promise<string>;
}

/** The destination has answered, but does not take the event. */
export class NotAccepted extends Error {
  /**
   * @param isRefusal whether that is about the event, as far as the answer shows, rather than about the destination
   * @param retryAfterMs how long the destination wants to be left alone; null: it does not say
   */
  constructor(
    message: string,
    readonly isRefusal: boolean,
    readonly retryAfterMs: number | null,
  ) {
    super(message);
    this.name = 'NotAccepted';
  }
}
