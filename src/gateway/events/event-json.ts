import { printableJson } from '../../lib/json-text.ts';
import type { EventRow } from '../store/events.ts';

/** What takes a destination's events. */
export interface EventSink {
  /** How many events it takes at a time, at most. */
  readonly batch: number;
  /**
   * Sends events in order; resolves when all are acknowledged.
   * @throws {NotAccepted} when the destination has answered
   * @throws Error that says what has failed, without secrets
   */
  send(events: readonly EventRow[], signal: AbortSignal): Promise<void>;
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

/** An escape in JSON, and whether it stands for half a surrogate pair. */
const ESCAPE = /\\(?:u(d[89a-f][0-9a-f]{2})|.)/g;

/** An event as destinations get it: ngrok's four members, and who made a change. Printable: agents chose parts of it. */
export function eventJson({ id, created_at, type, before, after, by, from_address }: EventRow): string {
  const event = {
    event_id: id,
    event_type: type,
    event_timestamp: created_at,
    object: after ?? before,
    ...(by !== null && { before: after && before, by, from_address }),
  };
  // JSON.stringify() escapes half a surrogate pair. It is no text: strict receivers would refuse the event.
  const json = JSON.stringify(event).replace(ESCAPE, (found, half) => (half === undefined ? found : '\ufffd'));
  return printableJson(json);
}
