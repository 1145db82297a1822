import type { IdSource } from '../../lib/ids.ts';
import { hostPort } from '../../lib/network/ip-address.ts';
import type { SecretsBox } from '../../lib/secrets-box.ts';
import { isMessageTarget, type MessageTarget } from '../../management/resources/message-target.ts';
import type { AuditLog, AuditRow } from './audit-log.ts';
import type { RefusedEvents } from './refused-events.ts';
import type { Database } from './sql/database.ts';
import { annotatedColumns, blob, END, integer, json, nullable, type RowOf, Table, tableOf, text } from './sql/table.ts';

/** Where a destination's events go, with its secrets. */
export interface WebhookTarget {
  kind: 'webhook';
  url: string;
  /** `whsec_` and the key in base64. */
  signingSecret: string;
}

export interface FileTarget {
  kind: 'file';
  /** Without folder and ending. */
  name: string;
}

export interface SyslogTarget {
  kind: 'syslog';
  host: string;
  port: number;
  transport: 'tcp' | 'tls' | 'udp';
  /** Of TCP and TLS; left out: octet counting. */
  framing?: 'octet-counting' | 'lf';
  /** The CA that is trusted rather than the public ones. */
  ca_pem?: string | undefined;
}

export type Target = WebhookTarget | FileTarget | SyslogTarget | MessageTarget;

const destinationColumns = {
  ...annotatedColumns,
  kind: text,
  /** What the audit log may show of the target, without secrets. */
  address: text,
  target: blob,
};

export type EventDestinationRow = RowOf<typeof destinationColumns>;

/** Where events are sent. Targets are encrypted at rest: URLs of webhooks often have secrets in them. */
export class EventDestinations extends Table<typeof destinationColumns> {
  constructor(
    database: Database,
    private readonly box: SecretsBox,
  ) {
    super(database, 'event_destinations', destinationColumns);
  }

  /** The columns of a target. */
  sealed(target: Target, id: string): Pick<EventDestinationRow, 'kind' | 'address' | 'target'> {
    const sealed = this.box.seal(JSON.stringify(target), id);
    return { kind: target.kind, address: addressOf(target), target: sealed };
  }

  /** @returns null when it cannot be decrypted */
  target({ id, target }: EventDestinationRow): Target | null {
    return this.box.opens(target, id) ? (JSON.parse(this.box.open(target, id)) as Target) : null;
  }

  /** Addresses of those that were encrypted with another encryption key. */
  sealedOtherwise(): string[] {
    return this.where('id > ?', ['']).flatMap((row) => (this.target(row) === null ? row.address : []));
  }
}

function addressOf(target: Target): string {
  if (target.kind === 'webhook') return new URL(target.url).origin;
  if (target.kind === 'file') return `${target.name}.jsonl`;
  if (isMessageTarget(target)) return messageAddress(target);
  return `${target.transport}://${hostPort(target.host, target.port)}`;
}

/** URLs of chat programs are secrets; a topic of ntfy is what people know it by. */
function messageAddress(target: MessageTarget): string {
  switch (target.kind) {
    case 'email':
      return target.to.join(', ');
    case 'ntfy':
      return target.url;
    case 'telegram':
      return `chat ${target.chat_id}`;
    case 'pagerduty':
      return `PagerDuty (${target.region})`;
    default:
      return new URL(target.url ?? '').origin;
  }
}

const subscriptionColumns = {
  ...annotatedColumns,
  /** Types of events; `*` for all. */
  sources: json<string[]>(),
  destination_ids: json<string[]>(),
};

export type EventSubscriptionRow = RowOf<typeof subscriptionColumns>;

/** Which events are sent to which destinations. */
export class EventSubscriptions extends tableOf('event_subscriptions', subscriptionColumns) {
  naming(destinationId: string): EventSubscriptionRow[] {
    return this.where('? IN (SELECT value FROM json_each(destination_ids))', [destinationId]);
  }

  /** The types of events that a destination gets; null: all. */
  typesFor(destinationId: string): readonly string[] | null {
    const types = new Set(this.naming(destinationId).flatMap(({ sources }) => sources));
    return types.has(ALL_TYPES) ? null : [...types];
  }
}

/** Stands for all types of events. */
export const ALL_TYPES = '*';

/** An event, whether or not it is a change. */
export interface EventRow extends Pick<AuditRow, 'id' | 'created_at' | 'type' | 'before' | 'after' | 'from_address'> {
  /** Null: it is no change. */
  by: string | null;
  /** The destination that alone gets it, as a message; left out: all that want events of its type. */
  only_for?: string | null;
}

/**
 * What happens without a change of the gateway's data. Events of one kind push out none of another: agents and clients can bring
 * theirs about as often as they like.
 */
export const ACTIVITY = {
  agents: ['agent_session_start.v0', 'agent_session_stop.v0', 'endpoint_start.v0', 'endpoint_stop.v0'],
  denials: ['connection_denied.v0', 'request_denied.v0'],
  operation: ['certificate_failed.v0', 'certificate_issued.v0', 'dashboard_sign_in_failed.v0', 'update_stopped.v0'],
  'sign-ins': ['sign_in_failed.v0', 'sign_in_succeeded.v0'],
  devices: ['data_budget_low.v0', 'data_budget_used_up.v0'],
} as const;
export const ACTIVITY_TYPES = Object.values(ACTIVITY).flat();
export type ActivityType = (typeof ACTIVITY_TYPES)[number];

export interface Activity {
  /**
   * @param describe called only if somebody wants the event
   * @param owner whose events of the type are limited, since they can be repeated at will; left out: no limit
   */
  note(type: ActivityType, describe: () => Readonly<Record<string, unknown>>, owner?: string): void;
  /**
   * Notes a sample of what clients can bring about as often as they like: ten events of the type a second, and five of one source.
   * Each has `omitted`, how many were left out before it.
   *
   * @param source the endpoint or client network whose events leave as many for others
   */
  sample(type: ActivityType, source: string, describe: () => Readonly<Record<string, unknown>>): void;
}

/** The type of events that are messages to one destination: nobody subscribes to them. */
export const MESSAGE_TYPE = 'message.v0';

const activityColumns = {
  ...{ id: text, created_at: text, type: text, object: json<Readonly<Record<string, unknown>>>() },
  only_for: nullable(text),
};

/** Events that are no changes, until they are delivered. Change it only inside {@link Database.write}. */
export class ActivityEvents extends tableOf('activity_events', activityColumns) {
  /** Like {@link AuditLog.after}, with the messages to a destination. */
  after(id: string, types: readonly string[] | null, limit: number, destinationId = ''): EventRow[] {
    const wanted = types === null ? 'TRUE' : 'type IN (SELECT value FROM json_each(?))';
    const sql = `id > ? AND ((only_for IS NULL AND ${wanted}) OR only_for = ?) ORDER BY id LIMIT ?`;
    const parameters = [id, ...(types === null ? [] : [JSON.stringify(types)]), destinationId, limit];
    return this.where(sql, parameters).map(asEvent);
  }

  event(id: string): EventRow | null {
    const row = this.get(id);
    return row && asEvent(row);
  }

  /** But not those that were refused: they can be sent again. */
  forgetBefore(id: string): void {
    const sql = 'DELETE FROM activity_events WHERE id < ? AND id NOT IN (SELECT event_id FROM refused_events)';
    this.database.run(sql, [id]);
  }

  /** Forgets the oldest ones of these types beyond a limit. @returns them, oldest first */
  forgetExcess(types: readonly string[], limit: number): EventRow[] {
    const ofTypes = 'type IN (SELECT value FROM json_each(?))';
    const excess = this.count(ofTypes, [JSON.stringify(types)]) - limit;
    if (excess <= 0) return [];
    const oldest = this.where(`${ofTypes} ORDER BY id LIMIT ?`, [JSON.stringify(types), excess]).map(asEvent);
    const sql = `DELETE FROM activity_events WHERE ${ofTypes} AND id <= ?`;
    this.database.run(sql, [JSON.stringify(types), oldest.at(-1)?.id ?? '']);
    return oldest;
  }
}

function asEvent({ object, ...row }: RowOf<typeof activityColumns>): EventRow {
  return { ...row, before: null, after: object, by: null, from_address: null };
}

/** Events of a kind that are no changes and wait; more of them push out the oldest of the kind. */
const MAX_ACTIVITY = 10_000;

const deliveryColumns = {
  id: text,
  created_at: text,
  /** The id of the event up to which everything is delivered, or was not wanted. */
  delivered: text,
  skipped: integer,
  failing_since: nullable(text),
  error: nullable(text),
};

type EventDeliveryRow = RowOf<typeof deliveryColumns>;

/** What deliveries are about. */
interface Delivered {
  readonly auditLog: AuditLog;
  readonly activityEvents: ActivityEvents;
  readonly eventSubscriptions: EventSubscriptions;
  readonly refusedEvents: RefusedEvents;
  readonly ids: () => IdSource;
  readonly now: () => string;
}

/** A message to a destination. */
export interface MessageTo {
  readonly destinationId: string;
  /** @param id of the message: links in it name that */
  content(id: string): object;
}

interface NewEvent extends Omit<RowOf<typeof activityColumns>, 'id' | 'object'> {
  object(id: string): Readonly<Record<string, unknown>>;
}

/** How far each destination is, by the id of the destination. Change it only inside {@link Database.write}. */
export class EventDeliveries extends Table<typeof deliveryColumns> {
  constructor(
    database: Database,
    private readonly parts: Delivered,
  ) {
    super(database, 'event_deliveries', deliveryColumns);
    parts.auditLog.onForgotten((row) => this.#skip([row]));
  }

  /** Begins with the events from now on. */
  begin({ id, created_at }: EventDestinationRow): void {
    this.insert({
      id,
      created_at,
      delivered: this.parts.auditLog.latestId(),
      skipped: 0,
      failing_since: null,
      error: null,
    });
  }

  /**
   * The destination has acknowledged an event, which it may have refused before.
   * @returns the event up to which that counts: an earlier one when the shared database has lost the event
   */
  acknowledged(id: string, eventId: string): string {
    const refused = this.parts.refusedEvents.of(id, eventId);
    if (refused) this.parts.refusedEvents.delete(refused.id);
    return this.#deliveredUpTo(id, eventId);
  }

  /** The destination has refused an event, and goes on with the next one. */
  refused(id: string, event: EventRow, reason: string): void {
    const { refusedEvents, ids, now } = this.parts;
    if (!this.get(id)) return;
    refusedEvents.note(id, event, reason, { id: ids().next('rfe'), created_at: now() });
    this.#deliveredUpTo(id, event.id);
  }

  /**
   * The shared database has lost commits, maybe those that recorded what was delivered: it is not delivered again.
   * @param delivered up to where destinations had everything, by their ids @param acknowledged the same, not recorded
   */
  keepDelivered(
    { keptEvent, delivered }: { readonly keptEvent: string; readonly delivered: Readonly<Record<string, string>> },
    acknowledged: Readonly<Record<string, string>>,
  ): void {
    for (const row of this.where('id > ?', [''])) {
      const upTo = [delivered[row.id] ?? '', acknowledged[row.id] ?? ''].reduce((a, b) => (a > b ? a : b));
      // Events that have come since then may have smaller ids than those that were lost.
      const kept = upTo < keptEvent ? upTo : keptEvent;
      if (kept > row.delivered) this.update({ ...row, delivered: kept });
    }
  }

  /** What a destination has acknowledged may have been lost meanwhile, and events that have come since then have smaller ids. */
  #kept(eventId: string): string {
    const { auditLog, activityEvents } = this.parts;
    if (auditLog.get(eventId) || activityEvents.event(eventId)) return eventId;
    const { keptEvent } = this.database;
    return keptEvent !== null && keptEvent < eventId ? keptEvent : eventId;
  }

  #deliveredUpTo(id: string, upTo: string): string {
    const eventId = this.#kept(upTo);
    const row = this.get(id);
    // Another gateway may have gone on with it.
    const delivered = row && row.delivered < eventId ? eventId : row?.delivered;
    if (row && delivered !== undefined) this.update({ ...row, delivered, failing_since: null, error: null });
    return eventId;
  }

  /** The oldest event of a destination that it has refused and is to get again. */
  toSendAgain(id: string): EventRow | null {
    const eventId = this.parts.refusedEvents.nextToSend(id)?.event_id;
    if (eventId === undefined) return null;
    const change = this.parts.auditLog.get(eventId);
    return change ?? this.parts.activityEvents.event(eventId);
  }

  failed(id: string, since: string, error: string): void {
    const row = this.get(id);
    // A gateway that was restarted, or has taken over, goes on with an outage.
    if (row) this.update({ ...row, failing_since: row.failing_since ?? since, error });
  }

  /** Before its subscriptions change: events that it did not want then are not sent later. */
  passOver(destinationId: string): void {
    const row = this.get(destinationId);
    if (!row) return;
    const delivered = this.parts.auditLog.latestId(this.waiting(row, 1)[0]?.id);
    if (delivered > row.delivered) this.update({ ...row, delivered });
  }

  /** The next events that a destination has to get, oldest first. */
  waiting({ id, delivered }: EventDeliveryRow, limit: number): EventRow[] {
    const { auditLog, activityEvents, eventSubscriptions } = this.parts;
    const types = eventSubscriptions.typesFor(id);
    const all: EventRow[] = [
      ...auditLog.after(delivered, types, limit),
      ...activityEvents.after(delivered, types, limit, id),
    ];
    return all.sort((a, b) => (a.id < b.id ? -1 : 1)).slice(0, limit);
  }

  /** Adds events that are no changes, and forgets those that no destination waits for, and the oldest of too many of a kind. */
  addActivity(events: readonly Omit<RowOf<typeof activityColumns>, 'id' | 'only_for'>[]): void {
    this.#add(events.map(({ object, ...event }) => ({ ...event, only_for: null, object: () => object })));
  }

  /** Adds messages to destinations. @returns their ids, by which receivers can tell a repetition */
  addMessages(messages: readonly MessageTo[]): string[] {
    const created_at = this.parts.now();
    return this.#add(
      messages.map(({ destinationId: only_for, content }) => ({
        ...{ created_at, type: MESSAGE_TYPE, only_for },
        object: (id) => ({ ...content(id) }),
      })),
    );
  }

  #add(events: readonly NewEvent[]): string[] {
    const { auditLog, activityEvents } = this.parts;
    const ids = auditLog.nextIds(events.length);
    for (const [place, { object, ...event }] of events.entries()) {
      const id = ids[place] ?? '';
      activityEvents.insert({ ...event, id, object: object(id) });
    }
    const waitedFor = this.where('id > ?', ['']).map((row) => this.waiting(row, 1)[0]?.id ?? END);
    activityEvents.forgetBefore(waitedFor.reduce((least, id) => (id < least ? id : least), END));
    for (const types of [...Object.values(ACTIVITY), [MESSAGE_TYPE]]) {
      const forgotten = activityEvents.forgetExcess(types, MAX_ACTIVITY);
      if (forgotten.length > 0) this.#skip(forgotten);
    }
    return ids;
  }

  /** @param events in the order of their ids */
  #skip(events: readonly Pick<EventRow, 'id' | 'type' | 'only_for'>[]): void {
    this.#skipRefused(events);
    for (const row of this.where('delivered < ?', [events.at(-1)?.id ?? ''])) {
      const types = this.parts.eventSubscriptions.typesFor(row.id);
      const isWanted = ({ type, only_for = null }: Pick<EventRow, 'type' | 'only_for'>) =>
        only_for === null ? types === null || types.includes(type) : only_for === row.id;
      const isMissed = (event: Pick<EventRow, 'id' | 'type' | 'only_for'>) =>
        event.id > row.delivered && isWanted(event);
      const count = events.filter(isMissed).length;
      if (count > 0) this.update({ ...row, skipped: row.skipped + count });
    }
  }

  #skipRefused(events: readonly Pick<EventRow, 'id'>[]): void {
    for (const destinationId of events.flatMap(({ id }) => this.parts.refusedEvents.forget(id))) {
      const row = this.get(destinationId);
      if (row) this.update({ ...row, skipped: row.skipped + 1 });
    }
  }
}
