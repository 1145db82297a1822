import { createHmac } from 'node:crypto';
import { brotliCompressSync, brotliDecompressSync, constants } from 'node:zlib';
import type { IdSource } from '../../lib/ids.ts';
import type { SecretsBox } from '../../lib/secrets-box.ts';
import { RESOURCES } from '../../management/operations.ts';
import type { ReadableResource } from '../../management/resources/resource.ts';
import type { CloudEndpointRow } from './cloud-endpoints.ts';
import type { Caller, Database, RowChange } from './sql/database.ts';
import { searchCondition } from './sql/list-choice.ts';
import { blob, END, json, nullable, type RowOf, Table, text } from './sql/table.ts';
import type { EdgeModules } from './tls-edges.ts';

/** Stands for a device that joins or leaves, where the id of an API key would be. */
export const BY_DEVICE = 'device';

type Values = Readonly<Record<string, unknown>>;

const columns = {
  id: text,
  created_at: text,
  type: text,
  object_id: text,
  by: text,
  from_address: nullable(text),
  before: nullable(json<Values>()),
  after: nullable(json<Values>()),
  part_of: nullable(text),
};

export type AuditRow = RowOf<typeof columns>;

/** Each with one parameter; times are RFC 3339, UTC. */
const CONDITIONS = {
  // A type, or what an object is called in types.
  type: "? IN (type, replace(replace(replace(type, '_created.v0', ''), '_updated.v0', ''), '_deleted.v0', ''))",
  object_id: 'object_id = ?',
  by: 'by = ?',
  since: 'created_at >= ?',
  until: 'created_at < ?',
  part_of: 'part_of = ?',
} as const;
const FILTERS = Object.keys(CONDITIONS) as (keyof typeof CONDITIONS)[];

/** A traffic policy as cloud endpoints and TLS edges have it. */
type StoredPolicy = CloudEndpointRow['traffic_policy'] | NonNullable<EdgeModules['traffic_policy']>;

/** Null: there was or is no policy. */
export interface PolicyChange {
  readonly before: StoredPolicy | null;
  readonly after: StoredPolicy | null;
}

/** Which changes are looked for; left out: all. */
export type AuditFilter = { readonly [Name in keyof typeof CONDITIONS]?: string | undefined } & {
  /** In lower case. */
  readonly search?: string | undefined;
  /** Without the parts of bulk actions, which are changes themselves. */
  readonly isWhole?: boolean;
};

const SEARCHED = [
  ...['id', 'type', "replace(type, '_', ' ')", 'object_id', 'by', 'from_address', 'before', 'after'],
  '(SELECT description FROM api_keys WHERE api_keys.id = by)',
  "(SELECT name || ' ' || email FROM people WHERE people.id = by)",
];
/** Rows that a search reads at a time: no more than some ten milliseconds. */
const SEARCHED_AT_ONCE = 5_000;

/**
 * What the rows of a table are called in the types of events; those that ngrok has, as there. Others are not recorded. The
 * database itself, the gateways of a shared one, commands to agents and sessions of the dashboard are no rows of tables: those who begin or change them
 * note it.
 */
const NAMES: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    Object.values<ReadableResource>(RESOURCES).flatMap(({ table, eventName }) =>
      eventName === null ? [] : [[table, eventName]],
    ),
  ),
  agent_commands: 'agent_command',
  bound_policies: 'endpoint_policy',
  dashboard_sessions: 'dashboard_session',
  database: 'database',
  ended_sign_ins: 'ended_sign_ins',
  gateways: 'gateway',
  passkeys: 'passkey',
  person_links: 'person_link',
  refused_events: 'refused_event',
  releases: 'release',
  site_names: 'site_name',
  stopped_updates: 'update_stop',
};

/** All types of events about changes. */
export const CHANGE_TYPES: readonly string[] = Object.values(NAMES)
  .flatMap((name) => ['created', 'updated', 'deleted'].map((what) => `${name}_${what}.v0`))
  .sort();

const POLICY = 'traffic_policy';
/** Members whose texts may have passwords in them: events have a digest, which shows whether they have changed. */
const OPAQUE: ReadonlySet<string> = new Set([POLICY, 'history']);
const DIGEST_PURPOSE = 'audit log digests';
/** Quick, with a window that has room for the longest policy twice: what both have in common is stored once. */
const COMPRESSION = { params: { [constants.BROTLI_PARAM_QUALITY]: 5, [constants.BROTLI_PARAM_LGWIN]: 18 } };

/** Also of events that were forgotten since they were delivered. */
const LATEST_ID = `SELECT MAX(id) FROM (
  SELECT MAX(id) AS id FROM audit_log WHERE id < ?
  UNION ALL SELECT MAX(id) FROM activity_events WHERE id < ?
  UNION ALL SELECT MAX(delivered) FROM event_deliveries WHERE delivered < ?)`;

const DAY_MS = 86_400_000;
const OLDEST = 'SELECT created_at FROM audit_log ORDER BY id LIMIT 1';
/** Rows that are read at a time. */
const PAGE = 200;
/** Old rows that are deleted with a new one, at most. */
const DELETED_AT_ONCE = 20;
/** Changes by devices, agents and people, who may repeat theirs: some 100 MB. Operators' own are never pushed out. */
const MAX_OF_OTHERS = 100_000;
/** Rows of others that are added before they are counted again, and deleted at once, which takes some milliseconds. */
const COUNTED_EVERY = 100;
const OPERATORS = /^(?:ak_|gateway$)/;
/** The same in SQL, which an index answers. */
const OF_OTHERS = "substr(by, 1, 3) <> 'ak_' AND by <> 'gateway' AND at_dashboard = 0";
const BY_OPERATOR = 'UPDATE audit_log SET at_dashboard = 1 WHERE id = ?';

/** Who has changed what, with the change in one transaction; for 90 days, or as {@link AuditLog.keepFor} says. */
export class AuditLog extends Table<typeof columns> {
  #keptMs = 90 * DAY_MS;
  #maxOfOthers = MAX_OF_OTHERS;
  #uncounted = COUNTED_EVERY;
  #onForgotten: (row: Pick<AuditRow, 'id' | 'type'>) => void = () => {};

  constructor(
    database: Database,
    private readonly box: SecretsBox,
    private readonly ids: () => IdSource,
    private readonly now: () => string,
  ) {
    super(database, 'audit_log', columns);
    database.onChange((caller, change) => this.#record(caller, change));
  }

  /**
   * As {@link find}, also for a search, which reads so many rows at most. `readTo` is the last one that it has read; null: it has
   * read all.
   */
  look(
    filter: AuditFilter,
    from: { before: string | null } | { after: string },
    limit: number,
  ): { items: AuditRow[]; readTo: string | null } {
    const { search, ...others } = filter;
    if (!search) return { items: this.find(others, from, limit), readTo: null };
    const { conditions, values, isForward } = this.#wanted(others, from);
    const order = isForward ? 'ASC' : 'DESC';
    const last = `SELECT id FROM audit_log WHERE ${conditions} ORDER BY id ${order} LIMIT 1 OFFSET ${SEARCHED_AT_ONCE - 1}`;
    const [end] = this.database.values(last, values) ?? [];
    const readTo = end === undefined ? null : String(end);
    const [found, ...texts] = searchCondition(SEARCHED, search);
    const isNear = `id ${isForward ? '<=' : '>='} ?`;
    const items = this.where(`${conditions} AND ${isNear} AND ${found} ORDER BY id ${order} LIMIT ?`, [
      ...values,
      ...[readTo ?? (isForward ? END : '')],
      ...texts,
      limit,
    ]);
    return { items, readTo };
  }

  /** A page of the changes that a filter lets through: those before a row, newest first, or those after one, oldest first. */
  find(
    filter: Omit<AuditFilter, 'search'>,
    from: { before: string | null } | { after: string },
    limit: number,
  ): AuditRow[] {
    const { conditions, values, isForward } = this.#wanted(filter, from);
    return this.where(`${conditions} ORDER BY id ${isForward ? 'ASC' : 'DESC'} LIMIT ?`, [...values, limit]);
  }

  #wanted(filter: AuditFilter, from: { before: string | null } | { after: string }) {
    const isForward = 'after' in from;
    const wanted = FILTERS.filter((name) => filter[name] !== undefined);
    return {
      isForward,
      conditions: [
        isForward ? 'id > ?' : 'id < ?',
        ...wanted.map((name) => CONDITIONS[name]),
        ...(filter.isWhole ? ['part_of IS NULL'] : []),
      ].join(' AND '),
      values: [isForward ? from.after : (from.before ?? END), ...wanted.map((name) => filter[name] ?? '')],
    };
  }

  /** All changes that a filter lets through, oldest first, page by page: years of them need not fit into memory. */
  *pages(filter: AuditFilter): Generator<AuditRow[]> {
    let after: string | null | undefined = '';
    while (typeof after === 'string') {
      const { items, readTo }: ReturnType<AuditLog['look']> = this.look(filter, { after }, PAGE);
      yield items;
      after = items.length === PAGE ? items.at(-1)?.id : readTo;
    }
  }

  /** A change of a policy; null: it was none, it was made with an older version, or it cannot be decrypted. */
  policyChange(id: string): PolicyChange | null {
    // Apart from the other columns: lists do not read it.
    const sql = 'SELECT policies FROM audit_log WHERE id = ? AND policies IS NOT NULL';
    const [stored] = this.database.values(sql, [id]) ?? [];
    const sealed = stored === undefined ? null : blob.read(stored);
    if (sealed === null || !this.box.opens(sealed, id)) return null;
    const texts = brotliDecompressSync(this.box.openBytes(sealed, id)).toString();
    const [before, after] = JSON.parse(texts) as [PolicyChange['before'], PolicyChange['after']];
    return { before, after };
  }

  /** The newest change of the policy of an object; null: there is none. */
  latestPolicyChange(objectId: string): AuditRow | null {
    return this.where('object_id = ? AND policies IS NOT NULL ORDER BY id DESC LIMIT 1', [objectId])[0] ?? null;
  }

  keepFor(days: number, ofOthers = MAX_OF_OTHERS): void {
    this.#keptMs = days * DAY_MS;
    this.#maxOfOthers = ofOthers;
  }

  /** Calls the listener for each row that is deleted because it is old, in that transaction. */
  onForgotten(listener: (row: Pick<AuditRow, 'id' | 'type'>) => void): void {
    this.#onForgotten = listener;
  }

  /** The id of the newest event, or of the newest before one; empty without one. Events are added in the order of their ids. */
  latestId(before = END): string {
    return String(this.database.values(LATEST_ID, [before, before, before])?.[0] ?? '');
  }

  /** Ids for new events, to be called in the transaction that adds them. */
  nextIds(count: number): string[] {
    // Commands beside the gateway, and other gateways, add events as well.
    const latest = this.latestId();
    return Array.from({ length: count }, () => this.ids().next('evt', latest));
  }

  /** The rows after one, oldest first. @param types of these types only; null: of all */
  after(id: string, types: readonly string[] | null, limit: number): AuditRow[] {
    if (types === null) return this.where('id > ? ORDER BY id LIMIT ?', [id, limit]);
    const sql = 'SELECT id FROM audit_log WHERE type = ? AND id > ? ORDER BY id LIMIT ?';
    const ids = types.flatMap((type) =>
      this.database.allValues(sql, [type, id, limit]).map(([found]) => String(found)),
    );
    return ids
      .sort()
      .slice(0, limit)
      .flatMap((found) => this.get(found) ?? []);
  }

  #record({ by, from, partOf, isOperator = OPERATORS.test(by) }: Caller, { table, before, after }: RowChange): void {
    const name = NAMES[table];
    if (name === undefined) return;
    // Devices join again as often as they like; their own histories have it. One that moves is a change of two sites.
    if (by === BY_DEVICE && before !== null && after !== null && before.site === after.site) return;
    // The first policy of an agent's endpoint is no change.
    if (table === 'bound_policies' && before === null) return;
    const what = before === null ? 'created' : after === null ? 'deleted' : 'updated';
    const created_at = this.now();
    const [id = ''] = this.nextIds(1);
    this.insert({
      id,
      created_at,
      type: `${name}_${what}.v0`,
      object_id: String((after ?? before)?.id),
      part_of: partOf ?? null,
      ...{ by, from_address: from, before: before && this.#shown(before), after: after && this.#shown(after) },
    });
    this.#keepPolicies(id, before?.[POLICY] ?? null, after?.[POLICY] ?? null);
    this.#forgetOld(Date.parse(created_at) - this.#keptMs);
    if (!isOperator) this.#forgetExcess();
    else if (!OPERATORS.test(by)) this.database.run(BY_OPERATOR, [id]);
  }

  #keepPolicies(id: string, before: unknown, after: unknown): void {
    const [from, to] = [JSON.stringify(before), JSON.stringify(after)];
    // The change itself, such as the end of an authtoken, must not wait for the right key.
    if (from === to || this.box.refusal !== null) return;
    const sealed = this.box.seal(brotliCompressSync(`[${from},${to}]`, COMPRESSION), id);
    this.database.run('UPDATE audit_log SET policies = ? WHERE id = ?', [sealed, id]);
  }

  #shown(row: Values): Values {
    const opaque = Object.entries(row).filter(([name, value]) => OPAQUE.has(name) && value !== null);
    return opaque.length === 0
      ? row
      : { ...row, ...Object.fromEntries(opaque.map(([name, it]) => [name, this.#digestOf(it)])) };
  }

  /** It has a key: else somebody who knows the rest of a policy could try which secret makes its digest. */
  #digestOf(value: unknown): string {
    const digest = createHmac('sha256', this.box.keyFor(DIGEST_PURPOSE)).update(JSON.stringify(value)).digest('hex');
    return `hmac-sha256:${digest.slice(0, 16)}`;
  }

  #forgetExcess(): void {
    this.#uncounted += 1;
    if (this.#uncounted < COUNTED_EVERY) return;
    this.#uncounted = 0;
    const excess = this.count(OF_OTHERS, []) - this.#maxOfOthers;
    if (excess > 0) this.#forget(this.#oldest(`WHERE ${OF_OTHERS}`, Math.min(excess, 2 * COUNTED_EVERY)));
  }

  #oldest(where: string, limit: number): Pick<AuditRow, 'id' | 'type' | 'created_at'>[] {
    return this.database.all(`SELECT id, type, created_at FROM audit_log ${where} ORDER BY id LIMIT ?`, [limit]);
  }

  #forget(rows: readonly Pick<AuditRow, 'id' | 'type'>[]): void {
    for (const row of rows) {
      this.delete(row.id);
      this.#onForgotten(row);
    }
  }

  #forgetOld(beforeMs: number): void {
    const isOld = (createdAt: string) => Date.parse(createdAt) < beforeMs;
    // Nearly always one row is all that has to be read.
    if (!isOld(String(this.database.values(OLDEST, [])?.[0]))) return;
    this.#forget(this.#oldest('', DELETED_AT_ONCE).filter(({ created_at }) => isOld(created_at)));
  }
}
