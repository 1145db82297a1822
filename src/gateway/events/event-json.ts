import { printableJson } from '../../lib/json-text.ts';
import type { EventRow } from '../store/events.ts';

/** What takes a destination's events. */
export interface EventSink {
  /** How many events it takes at a time, at most. */
  readonly batch: number;
  /** Sends events in order; resolves when all are acknowledged. @throws Error that says what has failed, without secrets */
  send(events: readonly EventRow[], signal: AbortSignal): Promise<void>;
}

/** An event as destinations get it: ngrok's four members, and who made a change. Printable: agents chose parts of it. */
export function eventJson({ id, created_at, type, before, after, by, from_address }: EventRow): string {
  const event = {
    event_id: id,
    event_type: type,
    event_timestamp: created_at,
    object: after ?? before,
    ...(by !== null && { before: after && before, by, from_address }),
  };
  return printableJson(JSON.stringify(event));
}
