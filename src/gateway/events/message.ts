import { shortText } from '../../lib/short-text.ts';
import { printable } from '../../lib/terminal-text.ts';
import { type EventRow, MESSAGE_TYPE } from '../store/events.ts';

/** What people are told. Texts are plain, without markup of any program. */
export interface Message {
  /** `changed`: a part of what a message was about is over. */
  readonly kind: 'begun' | 'changed' | 'over' | 'reminder' | 'summary' | 'event' | 'test';
  readonly severity: 'critical' | 'warning' | 'resolved' | 'info';
  /** One line. */
  readonly title: string;
  readonly lines: readonly string[];
  /** What to do; null: nothing. */
  readonly remedy: string | null;
  /** Id of the message with which it began that this one is about; null: this is the first one. */
  readonly incident: string | null;
  /** Ids of the first messages about what is over now. */
  readonly ended: readonly string[];
  readonly links: readonly { readonly text: string; readonly url: string }[];
}

/** A message on its way, with the id by which receivers can tell a repetition. */
export interface SentMessage extends Message {
  readonly id: string;
  /** RFC 3339, UTC. */
  readonly at: string;
}

const MAX_TITLE = 200;
const MAX_VALUE = 200;
/** Members that say what an event is about, in this order. */
const NAMES = ['name', 'domain', 'hostname', 'url', 'email', 'host', 'addr', 'description'];

/** What people read of an event: of a message, what it says; of another one, what happened, to what, and by whom. */
export function messageOfEvent(event: EventRow): SentMessage {
  const { id, created_at: at, type, before, after, by, from_address } = event;
  if (type === MESSAGE_TYPE) return { ...(after as unknown as Message), id, at };
  const object = after ?? before ?? {};
  const name = NAMES.map((member) => object[member]).find((value) => typeof value === 'string' && value !== '');
  const what = type.replace(/\.v\d+$/, '').replaceAll('_', ' ');
  const shown = (value: unknown) => shortText(printable(String(value)), MAX_VALUE);
  return {
    ...{ id, at, kind: 'event', severity: 'info', remedy: null, incident: null, ended: [], links: [] },
    title: shortText(name === undefined ? what : `${what}: ${shown(name)}`, MAX_TITLE),
    lines: [
      ...(object.id === undefined ? [] : [`Id: ${shown(object.id)}`]),
      ...(by === null ? [] : [`By: ${shown(by)}${from_address === null ? '' : ` from ${shown(from_address)}`}`]),
      `At: ${at}`,
    ],
  };
}

/** A message that shows whether messages arrive. @param gateway its name */
export function testMessage(gateway: string): Message {
  return {
    ...{ kind: 'test', severity: 'info', remedy: null, incident: null, ended: [], links: [] },
    title: `Test message of the gateway ${gateway}`,
    lines: ['Messages of this gateway arrive here.'],
  };
}
