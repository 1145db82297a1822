import { randomUUID } from 'node:crypto';
import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import type { Relays } from '../edge/relays/relays.ts';
import {
  type CountedElsewhere,
  type GatewayReport,
  type LiveCounts,
  type LiveEndpoint,
  type LiveFinder,
  type LiveGateway,
  type LiveSession,
  type LiveTunnel,
  type LiveView,
  NOBODY_ELSE,
  type Revocation,
  type SessionCommand,
} from '../endpoints/live-view.ts';
import type { Node } from '../store/shared/postgres.ts';
import type { Database } from '../store/sql/database.ts';
import { endpointIn, findInCluster, isShown, ofOneNode, tunnelOf, unique } from './cluster-finder.ts';
import { type Nodes, shownState } from './nodes.ts';
import type { OnlineRow, OnlineRows } from './online-rows.ts';

interface CommandRow {
  id: string;
  node: string;
  session_id: string;
  command: SessionCommand;
}

const TABLE = 'agent_commands';

/** Deletes, in a transaction, the commands that a lost node has not read. */
export function forgetCommands(database: Database, node: string): void {
  database.run(`DELETE FROM ${TABLE} WHERE node = ?`, [node]);
}

/** Nodes to whose sessions commands are to be passed on. */
export function nodesWithCommands(database: Database): string[] {
  return database.allValues(`SELECT DISTINCT node FROM ${TABLE}`, []).flat() as string[];
}

export class ClusterLive implements LiveView {
  readonly find: LiveFinder;

  constructor(
    private readonly options: {
      database: Database;
      nodes: Nodes;
      rows: OnlineRows;
      here: LiveView;
      /** Null: nobody is asked. */
      counted: CountedByOthers | null;
      /** Resolves when all nodes have what this one has committed, or cannot soon. */
      appliedEverywhere: () => Promise<void>;
      log: Log;
    },
  ) {
    const { database, here, nodes } = options;
    this.find = findInCluster({ ...options, here: here.find });
    // Their sessions ended with the process before this one.
    if (nodesWithCommands(database).includes(nodes.self)) this.#write(() => forgetCommands(database, nodes.self));
    database.onRowApplied((table, id) => {
      if (table !== TABLE) return;
      const row = database.get<CommandRow>(`SELECT * FROM ${TABLE} WHERE id = ?`, [id]);
      if (row?.node !== nodes.self) return;
      here.command(row.session_id, row.command);
      this.#write(() => database.run(`DELETE FROM ${TABLE} WHERE id = ?`, [id]));
    });
  }

  sessions(): readonly LiveSession[] {
    const others = this.#others('ts_').map(({ view }) => view as LiveSession);
    return unique([...this.options.here.sessions(), ...others]);
  }

  tunnels(): readonly LiveTunnel[] {
    const labelled = this.#others('tn_').map(({ view }) => view as LiveTunnel);
    const endpoints = this.#others('ep_').map(({ view }) => tunnelOf(view as LiveEndpoint));
    const shown = new Set(this.endpoints().map(({ id }) => id));
    const isOfShown = ({ endpointId }: LiveTunnel) => endpointId === null || shown.has(endpointId);
    return unique([...this.options.here.tunnels(), ...labelled, ...endpoints]).filter(isOfShown);
  }

  endpoints(): readonly LiveEndpoint[] {
    const { here, nodes } = this.options;
    const all = here.endpoints().map((endpoint) => ({ node: nodes.self, endpoint }));
    for (const row of this.#others('ep_')) all.push({ node: row.node, endpoint: endpointIn(row) });
    return unique(ofOneNode(all, nodes.self));
  }

  counts(): LiveCounts {
    const endpoints = new Map<string, number>();
    for (const { proto } of this.endpoints()) endpoints.set(proto, (endpoints.get(proto) ?? 0) + 1);
    const labelled = this.options.here.counts().labelled + this.#others('tn_').length;
    return { sessions: this.sessions().length, endpoints, labelled };
  }

  holders(): ReadonlyMap<string, ReadonlySet<string>> {
    const { here, nodes } = this.options;
    const found = new Map<string, Set<string>>();
    const add = (url: string, node: string) => found.set(url, (found.get(url) ?? new Set()).add(node));
    for (const { url } of here.endpoints()) add(url, nodes.self);
    for (const { node, view } of this.#others('ep_')) add((view as LiveEndpoint).url, node);
    return found;
  }

  gateways(): readonly LiveGateway[] {
    const { nodes, rows } = this.options;
    const counts = (node: string) => {
      const there = node === nodes.self ? [...rows.own.values()] : [...rows.of(node)];
      const ofKind = (kind: string) => there.filter(({ view }) => view.id.startsWith(kind)).length;
      return { sessions: ofKind('ts_'), endpoints: ofKind('ep_') };
    };
    const head = Math.max(0, ...nodes.all.map(({ applied }) => applied));
    return nodes.all.map((node) => {
      const { id, address, build: version, silentSeconds, applied } = node;
      const state = shownState(node);
      return {
        id,
        address,
        isThis: id === nodes.self,
        state,
        version,
        silentSeconds,
        behind: head - applied,
        ...counts(id),
      };
    });
  }

  countedElsewhere(): CountedElsewhere {
    return this.options.counted?.latest() ?? NOBODY_ELSE;
  }

  async askElsewhere(): Promise<CountedElsewhere> {
    return (await this.options.counted?.ask()) ?? NOBODY_ELSE;
  }

  command(sessionId: string, command: SessionCommand): boolean {
    const { options } = this;
    const { here, database } = options;
    if (here.command(sessionId, command)) return true;
    const row = options.rows.withId(sessionId).find((each) => isShown(each, options.nodes));
    if (row === undefined) return false;
    // Gateways of earlier versions cannot read it.
    if (command === 'disconnect' && !this.#isSameBuild(row.node)) return false;
    const insert = `INSERT INTO ${TABLE} (id, node, session_id, command) VALUES (?, ?, ?, ?)`;
    this.#write(() => database.run(insert, [randomUUID(), row.node, sessionId, command]));
    return true;
  }

  /** Other nodes see the change of the database that it follows from. */
  async revoke(revoked: Revocation): Promise<void> {
    await this.options.here.revoke(revoked);
    await this.options.appliedEverywhere();
  }

  #isSameBuild(node: string): boolean {
    const { nodes } = this.options;
    const buildOf = (wanted: string) => nodes.all.find(({ id }) => id === wanted)?.build;
    return buildOf(node) === buildOf(nodes.self);
  }

  #others(kind: string): OnlineRow[] {
    const { nodes, rows } = this.options;
    return [...rows.others].filter((row) => row.view.id.startsWith(kind) && isShown(row, nodes));
  }

  #write(work: () => void): void {
    this.options.database.write(work).catch((error: unknown) => {
      this.options.log.warn({ reason: messageOf(error) }, 'agent command not passed on');
    });
  }
}

/** What was said longer ago than that, before anybody looked again, is not shown. */
const STALE_MS = 10_000;

/** What the other nodes have counted. They are asked while somebody looks. */
export class CountedByOthers {
  readonly #latest = new Map<string, GatewayReport>();
  /** Ids of nodes that have not answered the last time. */
  readonly #silent = new Set<string>();
  #asking: Promise<void> | null = null;
  #askedAt = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly nodes: Nodes,
    private readonly relays: Pick<Relays, 'ask'>,
  ) {}

  /** What they have answered last; begins to ask them again. */
  latest(): CountedElsewhere {
    const now = performance.now();
    if (now - this.#askedAt > STALE_MS) this.#latest.clear();
    this.#askedAt = now;
    void this.#askAll();
    return this.#answers();
  }

  /** What they answer now. */
  async ask(): Promise<CountedElsewhere> {
    await this.#askAll();
    return this.#answers();
  }

  get #others(): Node[] {
    return this.nodes.all.filter(({ id }) => id !== this.nodes.self);
  }

  #answers(): CountedElsewhere {
    const others = this.#others;
    const answer = ({ id, address }: Node) => {
      const report = this.#latest.get(id);
      return report === undefined ? [] : [{ ...report, address }];
    };
    return {
      counted: others.flatMap(answer),
      missing: others.filter(({ id }) => this.#silent.has(id)).map(({ address }) => address),
    };
  }

  /** Those who ask meanwhile wait for the same answers. */
  #askAll(): Promise<void> {
    this.#asking ??= Promise.all(this.#others.map(({ id }) => this.#askOne(id))).then(() => {
      this.#asking = null;
    });
    return this.#asking;
  }

  async #askOne(id: string): Promise<void> {
    const place = this.nodes.place(id);
    try {
      if (place === undefined) throw new Error('it is silent');
      this.#latest.set(id, JSON.parse(await this.relays.ask(place, 'counted')) as GatewayReport);
      this.#silent.delete(id);
    } catch {
      // Why it does not answer is logged where it is asked.
      this.#silent.add(id);
    }
  }
}
