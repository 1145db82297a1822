import { SetsByKey } from '../../lib/sets-by-key.ts';
import { SortedKeys } from '../../lib/sorted-keys.ts';
import { namePlace, placeOf } from '../endpoints/endpoint-address.ts';
import type { LiveEndpoint, LiveSession, LiveTunnel } from '../endpoints/live-view.ts';
import type { Database } from '../store/sql/database.ts';
import type { RowsRead } from '../store/sql/group-commit.ts';

/** What is online at a node, as all nodes know it: an agent's session, or what it has bound. */
export interface OnlineRow {
  readonly key: string;
  readonly node: string;
  /** Identifies the agent's process, or at least its session. */
  readonly agent: string;
  /** Above 0: of an additional session of the agent. */
  readonly connection: number;
  readonly credential_id: string;
  readonly owner_id: string | null;
  /** The address that it occupies, see {@link placeOf}; null: none. */
  readonly place: string | null;
  readonly protocol: string;
  /** Whether it shares its address with other endpoints of its owner. */
  readonly pooled: boolean;
  /** Whether its authtoken has it elsewhere now. It may still be served here: nobody else can have its address yet. */
  readonly taken: boolean;
  readonly view: LiveSession | LiveTunnel | Omit<LiveEndpoint, 'traffic'>;
}

type Stored = Omit<OnlineRow, 'pooled' | 'taken' | 'view'> & { pooled: number; taken: number; view: string };

const TABLE = 'online';
const IDENTITY = ['key', 'node', 'agent', 'connection', 'credential_id', 'owner_id'];
const COLUMNS = [...IDENTITY, 'place', 'protocol', 'pooled', 'taken', 'view'];

/** Rows by which a write decides, see {@link Database.writeApart}. */
export function onlineWith(column: 'key' | 'place', value: string): RowsRead {
  return { table: TABLE, column, value };
}

/** The row of an endpoint that is online at a node. */
export function endpointRow(node: string, endpoint: LiveEndpoint): OnlineRow {
  const { traffic: _, ...view } = endpoint;
  return {
    ...identity(node, endpoint.id, endpoint.instance ?? endpoint.sessionId, endpoint.credentialId),
    connection: endpoint.connectionNumber ?? 0,
    owner_id: endpoint.ownerId,
    place: placeOf(endpoint),
    protocol: endpoint.proto,
    pooled: endpoint.poolingEnabled,
    view,
  };
}

/** The row of a session, or of a labelled tunnel: neither occupies an address. */
export function placelessRow(
  node: string,
  view: LiveSession | (LiveTunnel & { credentialId: string | null }),
): OnlineRow {
  const agent = 'sessionId' in view ? view.sessionId : view.id;
  const none = { connection: 0, owner_id: null, place: null, protocol: '', pooled: false };
  return { ...identity(node, view.id, agent, view.credentialId), ...none, view };
}

function identity(node: string, id: string, agent: string | null, credential: string | null) {
  return { key: `${node} ${id}`, node, agent: agent ?? '', credential_id: credential ?? '', taken: false };
}

/** The table of what is online at all nodes, with an index of what is at others in memory: routing asks no database. */
export class OnlineRows {
  readonly #own = new Map<string, OnlineRow>();
  readonly #others = new Map<string, OnlineRow>();
  /** Of other nodes: by address, unless they were taken; sessions by authtoken; labelled tunnels. */
  readonly #places = new SetsByKey<OnlineRow>();
  readonly #sessions = new SetsByKey<OnlineRow>();
  readonly #ownSessions = new SetsByKey<OnlineRow>();
  readonly #labelled = new Set<OnlineRow>();
  readonly #nodes = new SetsByKey<OnlineRow>();
  readonly #byId = new SetsByKey<OnlineRow>();
  readonly #idsInOrder = new SortedKeys();
  /** Endpoints and labelled tunnels by their session, endpoints by their authtoken. */
  readonly #bySession = new SetsByKey<OnlineRow>();
  readonly #endpoints = new SetsByKey<OnlineRow>();
  readonly #byUrl = new SetsByKey<OnlineRow>();
  readonly #ownPlaces = new SetsByKey<OnlineRow>();
  readonly #withPeople = new Set<OnlineRow>();

  /** @param on `change`: rows of other nodes have come, changed or gone; `own`: others may have changed rows of this node */
  constructor(
    private readonly database: Database,
    private readonly self: string,
    private readonly on: { change(row: OnlineRow, isThere: boolean): void; own(): void },
  ) {
    for (const row of this.#where('true', [])) this.#add(row);
    database.onRowApplied((table, key) => {
      if (table === TABLE) this.#applied(key);
    });
  }

  /** Of other nodes; those that were taken from them are left out. */
  get others(): Iterable<OnlineRow> {
    return this.#others.values();
  }

  atName(port: 'http' | 'tls', name: string): Iterable<OnlineRow> {
    return this.at(namePlace(port, name));
  }

  at(place: string): Iterable<OnlineRow> {
    return this.#places.get(place);
  }

  /** Sessions of an authtoken at other nodes. */
  sessionsOf(credentialId: string): Iterable<OnlineRow> {
    return this.#sessions.get(credentialId);
  }

  hasOwnSession(credentialId: string): boolean {
    return this.#ownSessions.has(credentialId);
  }

  /** Labelled tunnels at other nodes. */
  get labelled(): Iterable<OnlineRow> {
    return this.#labelled;
  }

  /** What has an identifier at other nodes. */
  withId(id: string): OnlineRow[] {
    return [...this.#byId.get(id)];
  }

  /** Endpoints and labelled tunnels of a session at other nodes. */
  ofSession(sessionId: string): Iterable<OnlineRow> {
    return this.#bySession.get(sessionId);
  }

  /** Endpoints of an authtoken at other nodes. */
  endpointsOf(credentialId: string): Iterable<OnlineRow> {
    return this.#endpoints.get(credentialId);
  }

  /** Endpoints at other nodes. */
  withUrl(url: string): Iterable<OnlineRow> {
    return this.#byUrl.get(url);
  }

  /** Endpoints at other nodes, at which people of the gateway may sign in. */
  get withPeople(): Iterable<OnlineRow> {
    return this.#withPeople;
  }

  /** Identifiers at other nodes below one, the last one first. */
  idsBelow(id: string): Iterable<string> {
    return this.#idsInOrder.below(id);
  }

  /** Of this node, at an address. */
  ownAt(place: string): Iterable<OnlineRow> {
    return this.#ownPlaces.get(place);
  }

  /** Of this node, by their keys. */
  get own(): ReadonlyMap<string, OnlineRow> {
    return this.#own;
  }

  of(node: string): Iterable<OnlineRow> {
    return this.#nodes.get(node);
  }

  /** Other nodes that rows name. */
  nodes(): string[] {
    return [...this.#nodes.keys()];
  }

  /** Of other nodes at an address, with those that were taken from them, as they are in this transaction. */
  rivalsAt(place: string): OnlineRow[] {
    return this.#where('place = ? AND node <> ?', [place, this.self]);
  }

  /** Whether an address is leased at any node, as it is in this transaction. */
  isLeased(place: string): boolean {
    return this.#where('place = ?', [place]).length > 0;
  }

  get(key: string): OnlineRow | undefined {
    return this.#where('key = ?', [key])[0];
  }

  put(row: OnlineRow): void {
    const values = { ...row, pooled: row.pooled ? 1 : 0, taken: row.taken ? 1 : 0, view: JSON.stringify(row.view) };
    const parameters = COLUMNS.map((column) => values[column as keyof typeof values]);
    this.database.run(
      `INSERT OR REPLACE INTO ${TABLE} (${COLUMNS.join(', ')}) VALUES (${COLUMNS.map(() => '?')})`,
      parameters,
    );
  }

  delete(key: string): void {
    this.database.run(`DELETE FROM ${TABLE} WHERE key = ?`, [key]);
  }

  #where(condition: string, parameters: string[]): OnlineRow[] {
    const rows = this.database.all<Stored>(`SELECT ${COLUMNS.join(', ')} FROM ${TABLE} WHERE ${condition}`, parameters);
    return rows.map((row) => ({
      ...row,
      pooled: row.pooled === 1,
      taken: row.taken === 1,
      view: JSON.parse(row.view),
    }));
  }

  #applied(key: string): void {
    const before = this.#own.get(key) ?? this.#others.get(key);
    if (before) this.#remove(before);
    const row = this.get(key);
    if (row) this.#add(row);
    else if (before && before.node !== this.self) this.on.change(before, false);
    if (key.startsWith(`${this.self} `)) this.on.own();
  }

  #add(row: OnlineRow): void {
    if (row.node === this.self) {
      this.#own.set(row.key, row);
      if (row.view.id.startsWith('ts_')) this.#ownSessions.add(row.credential_id, row);
      if (row.place !== null) this.#ownPlaces.add(row.place, row);
      return;
    }
    this.#others.set(row.key, row);
    this.#nodes.add(row.node, row);
    this.#byId.add(row.view.id, row);
    this.#idsInOrder.add(row.view.id);
    if ('sessionId' in row.view) this.#bySession.add(row.view.sessionId ?? '', row);
    if (row.view.id.startsWith('ep_')) this.#endpoints.add(row.credential_id, row);
    if ('url' in row.view) this.#byUrl.add(row.view.url, row);
    if ('admission' in row.view) this.#withPeople.add(row);
    if (row.place !== null && !row.taken) this.#places.add(row.place, row);
    if (row.view.id.startsWith('ts_')) this.#sessions.add(row.credential_id, row);
    if (row.view.id.startsWith('tn_')) this.#labelled.add(row);
    this.on.change(row, true);
  }

  #remove(row: OnlineRow): void {
    this.#own.delete(row.key);
    this.#others.delete(row.key);
    this.#nodes.delete(row.node, row);
    this.#places.delete(row.place ?? '', row);
    this.#ownPlaces.delete(row.place ?? '', row);
    this.#byId.delete(row.view.id, row);
    if (!this.#byId.has(row.view.id)) this.#idsInOrder.delete(row.view.id);
    if ('sessionId' in row.view) this.#bySession.delete(row.view.sessionId ?? '', row);
    this.#endpoints.delete(row.credential_id, row);
    if ('url' in row.view) this.#byUrl.delete(row.view.url, row);
    this.#sessions.delete(row.credential_id, row);
    this.#ownSessions.delete(row.credential_id, row);
    this.#labelled.delete(row);
    this.#withPeople.delete(row);
  }
}
