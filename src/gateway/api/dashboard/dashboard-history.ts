import { z } from 'zod';
import type { AuditEvent } from '../../../management/resources/audit-event.ts';
import { devices } from '../../../management/resources/device.ts';
import { actorDescriptions } from '../../events/shown-events.ts';
import { MINUTES } from '../../history/history-file.ts';
import type { SubjectName } from '../../history/history-points.ts';
import type { AuditRow } from '../../store/audit-log.ts';
import type { DeviceEvent, DeviceRow } from '../../store/devices.ts';
import { timestamp } from '../../store/store.ts';
import type { ApiContext } from '../api-context.ts';

/** The last day of one item, by the hour, the oldest first. */
export interface LastDay {
  readonly requests: readonly number[];
  /** Seconds. */
  readonly online: readonly number[];
  /** Seconds of which anything is known. */
  readonly known: readonly number[];
}

/** Answer to a list that shows the last day of its items. */
export interface LastDays {
  /** When the first hour begins. RFC 3339, UTC. */
  readonly from: string;
  /** By the ids of devices and endpoints; those that have no history are left out. */
  readonly items: Readonly<Record<string, LastDay>>;
}

/** Something that has happened, and that a plot marks. */
export interface HistoryEvent
  extends Pick<AuditEvent, 'created_at' | 'type' | 'object_id' | 'by_description' | 'before' | 'after'> {
  /** Of the audit log; null: it is not there, and `title` says what it is. */
  readonly id: string | null;
  readonly title?: string;
  /** Null: nobody, the gateway has done it on its own. */
  readonly by: string | null;
}

/** Answer to the page of a history. */
export interface HistoryEvents {
  /** The newest first. */
  readonly events: readonly HistoryEvent[];
  /** Whether there are older ones. */
  readonly hasMore: boolean;
}

/** As many as a list shows at once. */
const MAX_IDS = 100;
const HOURS = 24;
const MINUTE_MS = 60_000;
const MAX_EVENTS = 200;
/** What tells people which object it is. */
const MEMBERS = ['domain', 'name', 'host', 'description', 'command', 'device'];
/** That somebody looks at the dashboard changes nothing. */
const NOT_SHOWN = "type <> 'dashboard_session_created.v0'";

const ids = (text: string) => text.split(',').filter((id) => id !== '');
export const LastDaysQuery = z.strictObject({
  ids: z
    .string()
    .refine((text) => ids(text).length <= MAX_IDS, `has more than ${MAX_IDS} ids`)
    .transform(ids),
});

const time = z.iso.datetime({ offset: true }).transform((text) => timestamp(Date.parse(text)));
export const HistoryEventsQuery = z.strictObject({
  of: z.enum(['endpoint', 'device', 'gateway']),
  key: z.string().max(1024).default(''),
  from: time,
  to: time,
});
type Asked = z.output<typeof HistoryEventsQuery>;

/** What pages show of the history that the management API does not have in one answer. */
export function dashboardHistory(context: ApiContext) {
  return {
    lastDays: (asked: readonly string[]) => lastDays(context, asked),
    events: (asked: Asked) => historyEvents(context, asked),
  };
}

async function lastDays(context: ApiContext, asked: readonly string[]): Promise<LastDays> {
  const { store, history } = context;
  const hour = Math.floor(Date.parse(store.now()) / MINUTE_MS / MINUTES.hours);
  const range = {
    from: (hour - HOURS + 1) * MINUTES.hours,
    to: (hour + 1) * MINUTES.hours,
    step: MINUTES.hours,
  };
  const shown = history ? subjectsOf(context, asked) : [];
  const found =
    (await history?.readBriefly(
      shown.map(([, of]) => of),
      range,
    )) ?? [];
  const items = shown.map(([id], place): [string, LastDay] => {
    const points = found[place] ?? [];
    return [
      id,
      {
        requests: points.map(({ values }) => values.requests),
        online: points.map(({ online }) => online),
        known: points.map(({ known }) => known),
      },
    ];
  });
  return { from: timestamp(range.from * MINUTE_MS), items: Object.fromEntries(items) };
}

/** The traffic of TLS edges counts for the tunnels behind them. */
function subjectsOf({ store, live }: ApiContext, asked: readonly string[]): [id: string, of: SubjectName][] {
  return asked.flatMap((id): [string, SubjectName][] => {
    if (id.startsWith(devices.idPrefix)) return store.devices.get(id) ? [[id, { kind: 'device', key: id }]] : [];
    const endpoint = live.find.endpoint(id);
    return endpoint === null || endpoint.traffic === null ? [] : [[id, { kind: 'endpoint', key: endpoint.url }]];
  });
}

function historyEvents(context: ApiContext, { of, key, from, to }: Asked): HistoryEvents {
  const { store } = context;
  const about = of === 'gateway' ? null : of === 'device' ? ofDevices(context, [key]) : ofEndpoint(context, key);
  const describe = actorDescriptions(store);
  const changes = changesOf(context, about, from, to).map(
    (row): HistoryEvent => ({
      ...{ id: row.id, created_at: row.created_at, type: row.type, object_id: row.object_id, by: row.by },
      ...{ by_description: describe(row.by), before: named(row.before), after: named(row.after) },
    }),
  );
  const joins = (about?.devices ?? []).flatMap(joinsOf);
  const isInRange = ({ created_at }: HistoryEvent) => created_at >= from && created_at < to;
  const all = [...changes, ...certificatesOf(context, about, from, to), ...joins.filter(isInRange)];
  all.sort((a, b) => (a.created_at < b.created_at ? 1 : -1));
  return { events: all.slice(0, MAX_EVENTS), hasMore: all.length > MAX_EVENTS };
}

/** What events of an endpoint or a device are about. */
interface About {
  readonly ids: readonly string[];
  readonly credentials: readonly string[];
  readonly devices: readonly DeviceRow[];
  /** Its certificate may be renewed. */
  readonly host: string | null;
}

function ofDevices({ store, live }: ApiContext, keys: readonly string[]): About {
  const rows = keys.flatMap((id) => store.devices.get(id) ?? []);
  const credentials = rows.flatMap((row) => [row.credential_id ?? [], row.former_credential_id ?? []].flat());
  const urls = credentials.flatMap((id) => live.find.endpointsOf(id)).map(({ url }) => url);
  const [first] = rows;
  return {
    // Also one that was deleted has changes.
    ids: [...keys, ...credentials, ...urls],
    credentials,
    devices: rows,
    host: first === undefined ? null : `${first.name}.${first.site}`,
  };
}

function ofEndpoint(context: ApiContext, url: string): About {
  const { store, live, history } = context;
  const online = live.find.endpointsWithUrl(url);
  const bound = online.flatMap(({ credentialId }) => credentialId ?? []);
  const owner = bound.flatMap((id) => store.devices.byCredential(id)?.id ?? []);
  const {
    ids,
    credentials,
    devices: rows,
  } = ofDevices(context, [...new Set([...owner, ...(history?.devicesOf(url) ?? [])])]);
  // Tunnels behind TLS edges have labels.
  const host = URL.canParse(url) ? new URL(url).hostname : null;
  const domain = host === null ? null : store.reservedDomains.covering(host);
  return {
    ids: [...ids, ...bound, url, ...online.map(({ id }) => id), ...(domain ? [domain.id] : [])],
    credentials: [...credentials, ...bound],
    devices: rows,
    host,
  };
}

/** Changes in the audit log, the newest first; one more than are shown. @param about null: all */
function changesOf({ store }: ApiContext, about: About | null, from: string, to: string): AuditRow[] {
  const { auditLog } = store;
  const rest = 'AND created_at >= ? AND created_at < ? ORDER BY id DESC LIMIT ?';
  const range = [from, to, MAX_EVENTS + 1];
  if (about === null) return auditLog.where(`${NOT_SHOWN} AND part_of IS NULL ${rest}`, range);
  const own = auditLog.where(`object_id IN (SELECT value FROM json_each(?)) ${rest}`, [
    ...[JSON.stringify(about.ids)],
    ...range,
  ]);
  // Those are about sessions, which have other ids each time.
  const commands = auditLog.where(
    `type = 'agent_command_created.v0' AND after ->> 'credential_id' IN (SELECT value FROM json_each(?)) ${rest}`,
    [JSON.stringify(about.credentials), ...range],
  );
  return [...own, ...commands];
}

function named(values: AuditRow['after']): AuditRow['after'] {
  return values && Object.fromEntries(Object.entries(values).filter(([name]) => MEMBERS.includes(name)));
}

const OTHER = { id: null, before: null, by_description: null } as const;

/** Automatic renewals are no changes of anybody. Of each domain, the latest is known. */
function certificatesOf({ store }: ApiContext, about: About | null, from: string, to: string): HistoryEvent[] {
  const { reservedDomains, tlsCertificates } = store;
  const own = about?.host == null ? null : reservedDomains.certificateFor(about.host);
  if (about !== null && own === null) return [];
  const [which, ids] = own === null ? ['', []] : ['AND id = ?', [own]];
  return tlsCertificates
    .where(`issued_at >= ? AND issued_at < ? ${which} ORDER BY id DESC LIMIT ?`, [from, to, ...ids, MAX_EVENTS])
    .map(({ id, created_at, facts }) => ({
      ...OTHER,
      ...{ created_at, type: 'certificate_issued.v0', title: 'Certificate issued or renewed', object_id: id, by: null },
      after: { name: facts.subject_alternative_names.dns_names[0] ?? facts.subject_common_name },
    }));
}

/** What devices do on their own, and the audit log leaves out. */
const STEPS: { readonly [What in DeviceEvent['what']]?: string } = {
  'joined again': 'Device joined again',
  renewed: 'Authtoken of the device renewed',
};

function joinsOf({ id, name, history }: DeviceRow): HistoryEvent[] {
  return history.flatMap(({ at, what, by }) => {
    const title = STEPS[what];
    return title === undefined
      ? []
      : [{ ...OTHER, created_at: at, type: `device ${what}`, title, object_id: id, by, after: { name } }];
  });
}
