import { setTimeout as delay } from 'node:timers/promises';
import { RpcError } from '../../agent-protocol/rpc.ts';
import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import { alreadyOnline, cloudEndpointAt } from '../endpoints/endpoint-claims.ts';
import type { LiveEndpoint, LiveView } from '../endpoints/live-view.ts';
import type { CloudEndpoints } from '../store/cloud-endpoints.ts';
import type { Database } from '../store/sql/database.ts';
import { DatabaseAway, DatabaseBusy } from '../store/sql/database-problems.ts';
import type { RowsRead } from '../store/sql/group-commit.ts';
import type { NodeState, Nodes } from './nodes.ts';
import { endpointRow, type OnlineRow, type OnlineRows, onlineWith, placelessRow } from './online-rows.ts';

export interface OnlineHere extends Pick<LiveView, 'sessions' | 'tunnels' | 'endpoints'> {
  stopEndpoint(id: string, message: string, code: string): void;
}

/** Changes are written together: agents bind their endpoints one after another. */
const SYNC_MS = 50;
/** A gateway with thousands of agents compares less often: this part of its time at most. */
const SPARING = 20;
/** How often and after how long an address is tried again that another session of the same authtoken has: it may be ending. */
const TRIES = 6;
const RETRY_MS = 200;

class Refused extends Error {
  constructor(
    readonly reason: RpcError,
    /** Whether the authtoken that has it is the same. */
    readonly isOwn: boolean,
  ) {
    super(reason.message);
  }
}

/**
 * Has every address leased from all nodes before an endpoint goes online at it, and keeps the others informed of what is
 * online here. The order of all nodes' commits decides who has an address: a commit that has not seen all others before it is
 * made again.
 */
export class AddressLeases {
  readonly #coming = new Set<string>();
  /** Rows that others may have deleted, or this node, though they are still here. */
  readonly #ended = new Set<string>();
  readonly #failures = new Repeats();
  #timer: NodeJS.Timeout | undefined;
  #syncing: Promise<void> = Promise.resolve();
  /** How long the last comparison of everything took. */
  #costMs = 0;
  /** Null until this node serves anything. */
  #here: OnlineHere | null = null;
  /** Whether the rows of this node are those of this process. */
  #hasBegun = false;

  constructor(
    private readonly options: {
      database: Database;
      rows: OnlineRows;
      cloudEndpoints: Pick<CloudEndpoints, 'at' | 'name'>;
      nodes: Nodes;
      refresh: () => Promise<void>;
      log: Log;
    },
  ) {}

  /**
   * Leases the address of an endpoint, which then has to go online, or not to; {@link settle} says that this is decided.
   *
   * @throws {RpcError} when another node has it, or the shared database does not answer
   */
  async take(endpoint: LiveEndpoint): Promise<void> {
    const { nodes } = this.options;
    const row = endpointRow(nodes.self, endpoint);
    this.#coming.add(row.key);
    try {
      await this.#leased(row);
      this.#ended.delete(row.key);
      // The answer came late; others may have the address by now.
      if (nodes.hasExpired) throw databaseAway(null);
    } catch (error) {
      this.#coming.delete(row.key);
      if (!(error instanceof DatabaseAway || error instanceof DatabaseBusy)) throw error;
      if (this.#isHeld(row)) return;
      throw databaseAway(error);
    }
  }

  /** From now on, what is online here is kept up to date for the others. */
  begin(here: OnlineHere): void {
    this.#here = here;
    this.syncSoon();
  }

  /** Whether a session or an endpoint of another authtoken has an identifier at another node. */
  isIdOfOther(id: string, credentialId: string): boolean {
    return this.options.rows.withId(id).some(({ credential_id }) => credential_id !== credentialId);
  }

  /** The endpoint is online now, or will not be. */
  settle(id: string): void {
    this.#coming.delete(`${this.options.nodes.self} ${id}`);
    this.syncSoon();
  }

  syncSoon(): void {
    this.#timer ??= setTimeout(
      () => {
        this.#timer = undefined;
        void this.sync();
      },
      Math.max(SYNC_MS, this.#costMs * SPARING),
    );
  }

  /** Writes what has changed here, and takes offline what others have taken. What fails is repeated by the next one. */
  sync(): Promise<void> {
    this.#syncing = this.#syncing.then(() =>
      this.#sync().catch((error: unknown) => {
        const times = this.#failures.timesDue('sync');
        if (times !== null && !(error instanceof DatabaseAway))
          this.options.log.warn({ times, reason: messageOf(error) }, 'other gateways not told what is online');
      }),
    );
    return this.#syncing;
  }

  /** Gives everything up, since others may take it: nothing comes back without being leased again. */
  giveUp(): void {
    for (const key of this.options.rows.own.keys()) this.#ended.add(key);
    for (const { id } of this.#here?.endpoints() ?? [])
      this.#here?.stopEndpoint(id, 'this gateway has lost its database for too long', 'ERR_NGROK_741');
  }

  async stop(): Promise<void> {
    clearTimeout(this.#timer);
    await this.sync();
    clearTimeout(this.#timer);
  }

  /** What is in the way may be over already, and not known here yet. */
  async #leased(row: OnlineRow): Promise<void> {
    for (let tries = 0; ; tries += 1) {
      try {
        return await this.options.database.writeApart(() => this.#lease(row), this.#readsOf(row));
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        if (tries >= (error.isOwn ? TRIES : 1)) throw error.reason;
      }
      if (tries > 0) await delay(RETRY_MS);
      await this.options.refresh();
    }
  }

  #lease(row: OnlineRow): void {
    const { rows, cloudEndpoints, nodes } = this.options;
    const isCloud = cloudEndpoints.at(row.place ?? '').length > 0;
    if (isCloud) throw new Refused(cloudEndpointAt((row.view as LiveEndpoint).url), false);
    for (const rival of rows.rivalsAt(row.place ?? '')) {
      const verdict = judge(row, rival, nodes.state(rival.node));
      if (verdict === 'refused') {
        const { url } = rival.view as LiveEndpoint;
        const reason = alreadyOnline({ url, pooled: rival.pooled, isOurs: haveOneOwner(row, rival) }, row.pooled);
        throw new Refused(reason, row.credential_id === rival.credential_id);
      }
      if (verdict === 'gone') rows.delete(rival.key);
      else if (verdict === 'taken' && !rival.taken) rows.put({ ...rival, taken: true });
    }
    rows.put(row);
  }

  /** Who has the address: what decides about a lease. */
  #readsOf({ place }: OnlineRow): RowsRead[] {
    const value = place ?? '';
    return [onlineWith('place', value), { table: this.options.cloudEndpoints.name, column: 'place', value }];
  }

  /** Whether this process has leased the address for the same authtoken, and nobody can have taken it. */
  #isHeld({ place, credential_id }: OnlineRow): boolean {
    const { rows, nodes } = this.options;
    if (!this.#hasBegun || nodes.hasExpired) return false;
    const isUsable = ({ key, taken }: OnlineRow) => !taken && !this.#ended.has(key);
    return [...rows.ownAt(place ?? '')].some((own) => own.credential_id === credential_id && isUsable(own));
  }

  async #sync(): Promise<void> {
    if (this.#here === null) return;
    const { own } = this.options.rows;
    for (const row of this.#wanted(this.#here).endpoints) {
      const known = own.get(row.key);
      if (known === undefined || known.taken) await this.#leaseAgain(row, known, this.#here);
    }
    const began = performance.now();
    // What has come meanwhile is leased the next time; its address may be held by the row of an endpoint before it.
    const { endpoints, others } = this.#wanted(this.#here);
    const keys = new Set([...endpoints, ...others].map(({ key }) => key));
    const unleased = new Set(endpoints.filter(({ key }) => !own.has(key)).map(({ place }) => place));
    const isOver = ({ key, place }: OnlineRow) => !keys.has(key) && !this.#coming.has(key) && !unleased.has(place);
    const ended = [...own.values()].filter(isOver).map(({ key }) => key);
    const changed = [...endpoints, ...others].filter((row) => !isSame(row, own.get(row.key)));
    this.#costMs = performance.now() - began;
    if (changed.length + ended.length > 0) await this.#delete(ended, changed);
    this.#hasBegun = true;
  }

  #update(row: OnlineRow): void {
    const { rows } = this.options;
    const known = rows.get(row.key);
    if (row.place === null || known?.taken === false) rows.put(row);
  }

  /** Deletes rows of what is offline, and updates others. */
  async #delete(keys: readonly string[], changed: readonly OnlineRow[] = []): Promise<void> {
    const { database, rows } = this.options;
    const first = keys.filter((key) => !this.#ended.has(key));
    for (const key of first) this.#ended.add(key);
    try {
      await database.writeApart(
        () => {
          for (const key of keys) if (!this.#coming.has(key)) rows.delete(key);
          for (const row of changed) this.#update(row);
        },
        changed.map(({ key }) => onlineWith('key', key)),
      );
      for (const key of keys) this.#ended.delete(key);
    } catch (error) {
      if (error instanceof DatabaseAway && error.isUntried) for (const key of first) this.#ended.delete(key);
      throw error;
    }
  }

  /** An endpoint that is online here without its lease: it was taken, or the database was put back to an older state. */
  async #leaseAgain(row: OnlineRow, known: OnlineRow | undefined, here: OnlineHere): Promise<void> {
    const { nodes } = this.options;
    const id = row.key.slice(nodes.self.length + 1);
    const reason = known?.taken ? 'its authtoken has bound it at another gateway' : await this.#refusalOf(row);
    if (reason === null) return;
    here.stopEndpoint(id, `the endpoint was taken offline: ${reason}`, 'ERR_NGROK_334');
    await this.#delete([row.key]);
  }

  async #refusalOf(row: OnlineRow): Promise<string | null> {
    try {
      await this.options.database.writeApart(() => this.#lease(row), this.#readsOf(row));
      return null;
    } catch (error) {
      if (error instanceof Refused) return error.message;
      throw error;
    }
  }

  #wanted(here: OnlineHere): { endpoints: OnlineRow[]; others: OnlineRow[] } {
    const { nodes } = this.options;
    const sessions = here.sessions();
    const credentials = new Map(sessions.map(({ id, credentialId }) => [id, credentialId]));
    const labelled = here.tunnels().filter(({ labels }) => labels !== null);
    return {
      endpoints: here.endpoints().map((endpoint) => endpointRow(nodes.self, endpoint)),
      others: [
        // Together with their endpoints: others expect agents whose sessions have ended.
        ...sessions.filter(({ isLeaving }) => !isLeaving).map((session) => placelessRow(nodes.self, session)),
        ...labelled.map((tunnel) => {
          const credentialId = credentials.get(tunnel.sessionId) ?? null;
          return placelessRow(nodes.self, { ...tunnel, credentialId });
        }),
      ],
    };
  }
}

/**
 * Whether an endpoint can have an address that one at another node has. `shared`: beside it, as those of one agent with two
 * sessions; `taken`: its agent or its authtoken has moved here; `gone`: nothing serves it any more.
 */
function judge(row: OnlineRow, rival: OnlineRow, state: NodeState): 'shared' | 'taken' | 'gone' | 'refused' {
  if (state === 'gone') return 'gone';
  if (row.credential_id === rival.credential_id) {
    if (isOtherSession(row, rival)) return 'shared';
    if (rival.taken || rival.agent === row.agent || state === 'silent') return 'taken';
  } else if (rival.taken) return 'refused';
  return haveOneOwner(row, rival) && row.pooled && rival.pooled && row.protocol === rival.protocol
    ? 'shared'
    : 'refused';
}

/** Whether one agent has both, which binds its endpoints in each of its sessions. */
function isOtherSession(row: OnlineRow, rival: OnlineRow): boolean {
  return row.agent === rival.agent && row.connection !== rival.connection && row.protocol === rival.protocol;
}

function databaseAway(cause: unknown): RpcError {
  const why = 'the database of this gateway does not answer; try again';
  return new RpcError('ERR_NGROK_741', `the endpoint cannot be bound: ${why}`, { cause });
}

function haveOneOwner(row: OnlineRow, other: OnlineRow): boolean {
  return row.credential_id === other.credential_id || (row.owner_id !== null && row.owner_id === other.owner_id);
}

/** What can change while it is online. */
const MUTABLE = ['metadata', 'name', 'description', 'updatedAt'] as const;

function isSame({ view }: OnlineRow, known: OnlineRow | undefined): boolean {
  const [one, other] = [view, known?.view] as Partial<LiveEndpoint>[];
  return other !== undefined && MUTABLE.every((member) => one?.[member] === other[member]);
}
