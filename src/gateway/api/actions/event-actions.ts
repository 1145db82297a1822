import { randomBytes } from 'node:crypto';
import type { z } from 'zod';
import { momentOf } from '../../../lib/ids.ts';
import type { OPERATIONS } from '../../../management/operations.ts';
import { type AuditEvent, auditEvents } from '../../../management/resources/audit-event.ts';
import {
  type EventDestination,
  type EventDestinationCreate,
  type EventSource,
  type EventSubscription,
  EventTarget,
  eventDestinations,
  eventSubscriptions,
  type RefusedEvent,
  type RefusedEventChoice,
} from '../../../management/resources/event.ts';
import { isMessageTarget, MESSAGE_TARGETS, type MessageTarget } from '../../../management/resources/message-target.ts';
import { readAuthority } from '../../certificates/certificate-upload.ts';
import { actorDescriptions, asListed, policyDifferenceOf } from '../../events/shown-events.ts';
import { type AuditRow, CHANGE_TYPES } from '../../store/audit-log.ts';
import {
  ACTIVITY_TYPES,
  ALL_TYPES,
  type EventDestinationRow,
  type EventSubscriptionRow,
  type Target,
} from '../../store/events.ts';
import { MAX_REFUSED, type RefusedEventRow } from '../../store/refused-events.ts';
import { changed } from '../../store/sql/table.ts';
import { type Store, timestamp } from '../../store/store.ts';
import type { ApiContext, Links } from '../api-context.ts';
import { type ActionsOf, type ApiCaller, found } from '../operation-router.ts';
import { refuse } from '../request.ts';
import { shownPart } from './stored-actions.ts';
import { undoPolicyChange } from './undo-policy-change.ts';

const MAX_DESTINATIONS = 20;
const MAX_SUBSCRIPTIONS = 100;
/** More than there can be. */
const MAX_RULES = 1_000;
const KEY_BYTES = 32;
type SentTarget = z.output<typeof EventDestinationCreate>['target'];

const TYPES: ReadonlySet<string> = new Set([...CHANGE_TYPES, ...ACTIVITY_TYPES, ALL_TYPES]);

export function eventActions(context: ApiContext) {
  return {
    auditEvents: auditEventActions(context),
    eventDestinations: eventDestinationActions(context),
    eventSubscriptions: eventSubscriptionActions(context),
  };
}

function eventDestinationActions(context: ApiContext): ActionsOf<typeof OPERATIONS.eventDestinations> {
  const { database, ids, now, ...store } = context.store;
  const {
    eventDestinations: rows,
    eventDeliveries: deliveries,
    eventSubscriptions: subscriptions,
    refusedEvents,
  } = store;
  const stored = (id: string) => found(rows.get(id), eventDestinations);
  const shown = (row: EventDestinationRow) => showDestination(context, row, null);
  /** Decides on refused events: on all of a destination, or on those chosen. */
  const decide =
    (decision: (row: RefusedEventRow) => void) =>
    (id: string, { refused_event_ids: chosen }: z.output<typeof RefusedEventChoice>, caller: ApiCaller) =>
      database.write(() => {
        const row = stored(id);
        const refused = refusedEvents.pageOf(id, null, MAX_REFUSED);
        for (const each of refused) if (chosen?.includes(each.id) ?? true) decision(each);
        return shown(row);
      }, caller);
  return {
    get: (id) => shown(stored(id)),
    list: (before, limit) => rows.page(before, limit).map(shown),
    listRefusedEvents: (id, before, limit) => refusedEvents.pageOf(stored(id).id, before, limit).map(showRefusedEvent),
    sendAgain: decide((row) => refusedEvents.update({ ...row, send_again: true })),
    letGo: decide(({ id }) => refusedEvents.delete(id)),
    test: (id) => context.testDestination(stored(id)),
    create: ({ description = null, metadata = null, target: sent }, caller) =>
      database.write(() => {
        if (rows.count('id > ?', ['']) >= MAX_DESTINATIONS)
          throw refuse(400, 5102, `too many event destinations: ${MAX_DESTINATIONS} are allowed; delete one`);
        const id = ids.next('ed');
        const { target, made } = completed(sent, null);
        const row = { id, created_at: now(), description, metadata, ...rows.sealed(target, id) };
        refuseSharedFile(rows, row);
        rows.insert(row);
        deliveries.begin(row);
        return showDestination(context, row, made);
      }, caller),
    update: (id, { target: sent, format: _, ...body }, caller) =>
      database.write(() => {
        const before = stored(id);
        const { target, made } = sent ? completed(sent, rows.target(before)) : { target: null, made: null };
        const row = { ...changed(before, body), ...(target && rows.sealed(target, id)) };
        refuseSharedFile(rows, row);
        rows.update(row);
        return showDestination(context, row, made);
      }, caller),
    delete: (id, _body, caller) =>
      database.write(() => {
        const row = stored(id);
        const [subscription] = subscriptions.naming(id);
        if (subscription) throw refuse(400, 5112, `in use: the event subscription ${subscription.id} names it`);
        const rule = context.store.messageRules.page(null, MAX_RULES).find((each) => each.destination_ids.includes(id));
        if (rule) throw refuse(400, 5112, `in use: the message rule ${rule.id} names it`);
        rows.delete(row.id);
      }, caller),
  };
}

/** Two destinations would write into each other's lines. */
function refuseSharedFile(rows: Store['eventDestinations'], { id, kind, address }: EventDestinationRow): void {
  const [other] = rows.where('kind = ? AND address = ? AND id <> ?', [kind, address, id]);
  if (kind === 'file' && other) throw refuse(400, 5100, `target.file.name: the destination ${other.id} has this file`);
}

/** A target with its signing secret, and that secret if the gateway has made it. */
function completed(sent: SentTarget, before: Target | null): { target: Target; made: string | null } {
  if (before && before.kind !== sent.kind)
    throw refuse(400, 5108, `target: it is a ${before.kind}; create another destination for a ${sent.kind}`);
  if ((sent.kind === 'syslog' || sent.kind === 'email') && sent.ca_pem !== undefined) readAuthority(sent.ca_pem);
  if (isMessageTarget(sent)) return { target: withSecrets(sent, before), made: null };
  if (sent.kind !== 'webhook') return { target: sent, made: null };
  const { kind, url, signing_secret: given = before?.kind === 'webhook' ? before.signingSecret : undefined } = sent;
  const signingSecret = given ?? `whsec_${randomBytes(KEY_BYTES).toString('base64')}`;
  return { target: { kind, url, signingSecret }, made: given === undefined ? signingSecret : null };
}

/** A target with the secrets that were left out, as before. @throws {ApiError} when it lacks one that it needs */
function withSecrets(sent: MessageTarget, before: Target | null): MessageTarget {
  const { secrets, needed }: { secrets: readonly string[]; needed: readonly string[] } = MESSAGE_TARGETS[sent.kind];
  const former = Object.entries(before ?? {}).filter(([name]) => secrets.includes(name));
  const target: MessageTarget = { ...Object.fromEntries(former), ...sent };
  const missing = needed.find((name) => !Object.hasOwn(target, name));
  if (missing !== undefined) throw refuse(400, 5100, `target.${sent.kind}.${missing}: is missing`);
  return target;
}

/** What is shown of a target: all but its secrets. */
function shownMessageTarget({ kind, ...target }: MessageTarget, address: string): object {
  const secrets: readonly string[] = MESSAGE_TARGETS[kind].secrets;
  const open = Object.entries(target).filter(([name]) => !secrets.includes(name));
  return { [kind]: { ...Object.fromEntries(open), address } };
}

const NO_TARGETS = EventTarget.parse({});

function showTarget(target: Target | null, address: string, made: string | null): EventDestination['target'] {
  const none = NO_TARGETS;
  if (target !== null && isMessageTarget(target)) return { ...none, ...shownMessageTarget(target, address) };
  if (target?.kind === 'webhook') return { ...none, webhook: { url: target.url, signing_secret: made } };
  if (target?.kind === 'file') return { ...none, file: { name: target.name } };
  if (target?.kind !== 'syslog') return none;
  const { host, port, transport, framing = 'octet-counting', ca_pem = null } = target;
  return { ...none, syslog: { host, port, transport, framing, ca_pem } };
}

/** @param made a secret that the gateway has made, which is shown once, like tokens */
function showDestination(
  { store, links }: ApiContext,
  row: EventDestinationRow,
  made: string | null,
): EventDestination {
  const { id, created_at, description, metadata } = row;
  const delivery = store.eventDeliveries.get(id);
  return {
    ...{ id, uri: links.of(eventDestinations, id), created_at, description, metadata },
    format: 'json',
    target: showTarget(store.eventDestinations.target(row), row.address, made),
    ...(delivery && {
      delivery: {
        failing_since: delivery.failing_since,
        error: delivery.error,
        waiting_since: store.eventDeliveries.waiting(delivery, 1)[0]?.created_at ?? null,
        delivered_until: deliveredUntil(delivery.delivered),
        skipped: delivery.skipped,
        refused: store.refusedEvents.countOf(id),
      },
    }),
  };
}

function showRefusedEvent({ id, created_at, reason, ...row }: RefusedEventRow): RefusedEvent {
  const { event_id, type: event_type, event_created_at: event_timestamp, send_again: sending } = row;
  return { id, created_at, event_id, event_type, event_timestamp, reason, sending };
}

/** @param id of the newest event that a destination has, or did not want; empty: none yet */
function deliveredUntil(id: string): string | null {
  const moment = momentOf(id);
  return moment && timestamp(moment.getTime());
}

function eventSubscriptionActions({ store, links }: ApiContext): ActionsOf<typeof OPERATIONS.eventSubscriptions> {
  const { database, ids, now, eventSubscriptions: rows } = store;
  const stored = (id: string) => found(rows.get(id), eventSubscriptions);
  const showSource = (id: string, type: string): EventSource => ({
    type,
    uri: `${links.of(eventSubscriptions, id)}/sources/${encodeURIComponent(type)}`,
  });
  const shown = ({ sources, destination_ids, ...row }: EventSubscriptionRow): EventSubscription => ({
    ...row,
    uri: links.of(eventSubscriptions, row.id),
    sources: sources.map((type) => showSource(row.id, type)),
    destinations: destination_ids.map((id) => links.ref(eventDestinations, id)),
  });
  const checkReferences = (sources: readonly string[], destinations: readonly string[]) => {
    const unknown = sources.find((type) => !TYPES.has(type));
    if (unknown !== undefined)
      throw refuse(400, 238, `sources: ${unknown} is not a type of events of this gateway; docs/events.md lists them`);
    if (!destinations.every((id) => store.eventDestinations.get(id)))
      throw refuse(400, 5103, 'destination_ids: no event destination has this id');
  };
  const put = (row: EventSubscriptionRow, before: EventSubscriptionRow | null) => {
    for (const id of new Set([...row.destination_ids, ...(before?.destination_ids ?? [])]))
      store.eventDeliveries.passOver(id);
    if (before) rows.update(row);
    else rows.insert(row);
    return row;
  };
  const changeSources = (id: string, caller: ApiCaller, change: (sources: readonly string[]) => string[]) =>
    database.write(() => {
      const row = stored(id);
      return put({ ...row, sources: change(row.sources) }, row);
    }, caller);
  const known = (sources: readonly string[], type: string) => {
    if (!sources.includes(type)) throw refuse(404, 5125, 'the event subscription has no source with this type');
    return type;
  };
  return {
    get: (id) => shown(stored(id)),
    list: (before, limit) => rows.page(before, limit).map(shown),
    create: ({ description = null, metadata = null, sources, destination_ids: sent }, caller) =>
      database.write(() => {
        if (rows.count('id > ?', ['']) >= MAX_SUBSCRIPTIONS)
          throw refuse(400, 5131, `too many event subscriptions: ${MAX_SUBSCRIPTIONS} are allowed; delete one`);
        const types = sources.map(({ type }) => type);
        const destination_ids = [...new Set(sent)];
        checkReferences(types, destination_ids);
        const common = { id: ids.next('esb'), created_at: now(), description, metadata };
        return shown(put({ ...common, sources: types, destination_ids }, null));
      }, caller),
    update: (id, { sources, destination_ids: sent, ...body }, caller) =>
      database.write(() => {
        const before = stored(id);
        const types = sources?.map(({ type }) => type) ?? before.sources;
        const destination_ids = [...new Set(sent ?? before.destination_ids)];
        checkReferences(types, destination_ids);
        return shown(put({ ...changed(before, body), sources: types, destination_ids }, before));
      }, caller),
    delete: (id, _body, caller) =>
      database.write(() => {
        rows.delete(stored(id).id);
      }, caller),
    getSources: (id) => ({
      sources: stored(id).sources.map((type) => showSource(id, type)),
      uri: `${links.of(eventSubscriptions, id)}/sources`,
    }),
    getSource: (id, _body, _caller, type) => showSource(id, known(stored(id).sources, type)),
    addSource: async (id, { type }, caller) => {
      await changeSources(id, caller, (sources) => {
        checkReferences([type], []);
        if (sources.includes(type)) throw refuse(400, 5127, 'type: the event subscription has it already');
        return [...sources, type];
      });
      return showSource(id, type);
    },
    updateSource: async (id, _body, caller, type) => {
      await changeSources(id, caller, (sources) => [...sources.filter((each) => each !== known(sources, type)), type]);
      return showSource(id, type);
    },
    removeSource: async (id, _body, caller, type) => {
      await changeSources(id, caller, (sources) => sources.filter((each) => each !== known(sources, type)));
    },
  };
}

/** Reads who has changed what, and undoes changes of policies. */
function auditEventActions(context: ApiContext): ActionsOf<typeof OPERATIONS.auditEvents> {
  const { store, links } = context;
  const { auditLog } = store;
  const shown = (row: AuditRow): AuditEvent => ({
    ...showEvent(links, row, actorDescriptions(store)),
    ...policyDifferenceOf(auditLog, row),
  });
  return {
    get: (id) => shown(found(auditLog.get(id), auditEvents)),
    undo: async (id, _body, caller) => shown(await undoPolicyChange(context, id, caller)),
    list: (before, limit, filter) => {
      const describe = actorDescriptions(store);
      return shownPart(auditLog.look(asListed(filter), { before }, limit), (row) => showEvent(links, row, describe));
    },
  };
}

function showEvent(links: Links, row: AuditRow, describe: (by: string) => string | null): AuditEvent {
  return { ...row, by_description: describe(row.by), uri: links.of(auditEvents, row.id) };
}
