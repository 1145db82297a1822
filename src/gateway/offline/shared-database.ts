import { join } from 'node:path';
import { OperatorError } from '../../lib/errors.ts';
import { createLog } from '../../lib/log/log.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { nextCa } from '../certificates/local-ca/ca-rotation.ts';
import { openPresentCa } from '../certificates/local-ca/shared-ca.ts';
import { shownState } from '../cluster/nodes.ts';
import type { GatewayReport, LiveGateway } from '../endpoints/live-view.ts';
import { BY_COMMAND } from '../store/command-access.ts';
import { openForChanges, openGatewayDatabase } from '../store/open-gateway-store.ts';
import { isSameSoon } from '../store/shared/join-shared.ts';
import { movedAway, type Node, Postgres, stillServes } from '../store/shared/postgres.ts';
import { REPLICA_TABLE } from '../store/sql/database.ts';
import { DatabaseAway } from '../store/sql/database-problems.ts';
import { requireSameKey } from '../store/stored-secrets.ts';
import { type Store, type StoreLocation, withStore } from './command-store.ts';
import { boxOf, gatewayProof } from './gateway-proof.ts';
import { type Turns, UpdateTurns } from './update-turns.ts';

/** A gateway that serves the shared database, as operators see it. */
export interface ServingGateway extends Node {
  readonly state: LiveGateway['state'];
  /** Changes that it does not have yet. */
  readonly behind: number;
  readonly sessions: number;
  readonly endpoints: number;
}

/** The shared database of gateways, used beside those gateways by a command. */
export class SharedDatabase {
  private constructor(private readonly postgres: Postgres) {}

  /** @throws {OperatorError} when it is unreachable or cannot be used; see {@link reasonAway} */
  static async use<T>(url: string, work: (shared: SharedDatabase) => Promise<T>): Promise<T> {
    const postgres = new Postgres(url);
    try {
      await postgres.prepare();
      return await work(new SharedDatabase(postgres));
    } finally {
      await postgres.close();
    }
  }

  /** Whether no gateway has used it yet. */
  async isUnused(): Promise<boolean> {
    return (await this.postgres.head()) === null;
  }

  /** @throws {OperatorError} when a gateway has moved everything away */
  async requireInUse(): Promise<void> {
    if (await this.postgres.isEnded()) throw movedAway();
  }

  /** The server's version, and by how much its clock is ahead of this one's. */
  facts(): ReturnType<Postgres['facts']> {
    return this.postgres.facts();
  }

  /** Those that serve it, or are silent. */
  async gateways(): Promise<ServingGateway[]> {
    const head = (await this.postgres.head())?.version ?? 0;
    const online = await this.postgres.online();
    return (await this.postgres.nodes()).map((node) => ({
      ...node,
      ...(online.get(node.id) ?? { sessions: 0, endpoints: 0 }),
      state: shownState(node),
      behind: Math.max(0, head - node.applied),
    }));
  }

  /** Has the agents of a gateway go to others. @returns whether there is one with the id */
  drain(id: string): Promise<boolean> {
    return this.postgres.drain(id);
  }

  async sessionsOf(id: string): Promise<number> {
    return (await this.postgres.online()).get(id)?.sessions ?? 0;
  }

  /** See {@link gatewayProof}. */
  proof(settings: GatewayServerSettings, now: () => number): ReturnType<typeof gatewayProof> {
    return gatewayProof(settings, now);
  }

  /** Whose turn it is to update itself, and what was given up. */
  updates(): Promise<Turns> {
    return new UpdateTurns(this.postgres).read();
  }

  /**
   * Removes a gateway, so that others can serve what it had, and update themselves.
   *
   * @returns its address; null: there was none
   */
  async remove(id: string): Promise<string | null> {
    const address = (await this.postgres.nodes()).find((node) => node.id === id)?.address;
    const wasThere = await this.postgres.leave(id);
    // One that was lost in its turn may have stopped before.
    const turn = await new UpdateTurns(this.postgres).removed(id);
    return wasThere ? (address ?? id) : (turn?.address ?? null);
  }

  /**
   * Compares a gateway's copy in DATA_DIR, which is left as it is; `own`: it has a database of its own there.
   *
   * @throws {OperatorError} when there is no database, or the encryption key is not the one of the shared database
   */
  async compareCopy(settings: GatewayServerSettings): Promise<'same' | 'different' | 'own'> {
    const database = openGatewayDatabase(settings);
    try {
      if (!database.isReplica) return 'own';
      requireSameKey(database, boxOf(settings));
      return (await isSameSoon(database.replicaParts(), this.postgres)) ? 'same' : 'different';
    } finally {
      database.close();
    }
  }
}

/**
 * Asks the gateways of a shared database what they know. One that serves alone is the one here, or answers nobody; one that is
 * silent checks that itself when it starts: both are left out.
 *
 * @returns the address of the first one that lacks it; null: all have it
 * @throws {OperatorError} when one does not answer
 */
export async function gatewayWithout(
  settings: GatewayServerSettings,
  url: string,
  has: (report: Partial<GatewayReport>) => boolean,
): Promise<string | null> {
  return SharedDatabase.use(url, async (shared) => {
    const { clockAheadMs } = await shared.facts();
    const ask = gatewayProof(settings, () => Date.now() + clockAheadMs);
    for (const { id, address, alone, state } of await shared.gateways()) {
      if (alone || state === 'silent') continue;
      const [, host = '', port = ''] = /^\[?(.*?)\]?:(\d+)$/.exec(address) ?? [];
      const told = await ask({ id, host, port: Number(port) }).catch((cause: unknown) => {
        throw new OperatorError(`the gateway ${address} does not say what it knows: check that it runs`, 1, { cause });
      });
      if (!has(JSON.parse(String(told)) as Partial<GatewayReport>)) return address;
    }
    return null;
  });
}

/**
 * Refuses a change of the CA as long as a gateway of the shared database would not take part: devices that trust the CA of the
 * others could not come back to it.
 *
 * @throws {OperatorError} when one cannot change its CA, does not have the next one, or does not answer
 */
export async function requireCaEverywhere(settings: GatewayServerSettings, { database }: Store): Promise<void> {
  const { databaseUrl } = settings;
  if (databaseUrl === null) return;
  const next = nextCa(database);
  const has = ({ cas }: { cas?: readonly string[] }) => cas !== undefined && (next === null || cas.includes(next.id));
  const address = await gatewayWithout(settings, databaseUrl, has);
  if (address === null) return;
  throw new OperatorError(
    next === null
      ? `the gateway ${address} cannot change its CA: update it to this version first`
      : `the gateway ${address} does not have the next CA yet: try again in some seconds; its log says what keeps it`,
    2,
  );
}

/** Why the shared database does not answer; null for other errors. */
export function reasonAway(error: unknown): string | null {
  return error instanceof DatabaseAway ? error.reason : null;
}

/** The id of the gateway in this folder among those that share its database; null: it shares none. */
export function ownGatewayId(location: StoreLocation): string | null {
  const database = openGatewayDatabase(location);
  try {
    const row = database.isReplica ? database.get<{ node: string }>(`SELECT node FROM ${REPLICA_TABLE}`) : null;
    return row?.node ?? null;
  } finally {
    database.close();
  }
}

/**
 * Moves a stopped gateway's data into an empty shared database. It can be repeated when it was interrupted.
 *
 * @throws {OperatorError} when the shared database is in use
 */
export async function moveToShared(settings: GatewayServerSettings, databaseUrl: string): Promise<void> {
  const log = await createLog('silent', 'json');
  const location = { ...settings, databaseUrl };
  const { store, close } = await openForChanges(location, { older: 'upgrade', moves: 'in', log });
  try {
    await openPresentCa(join(settings.dataDir, 'gateway'), store, log);
    await noteMove(store, 'sqlite', 'postgres');
  } finally {
    await close();
  }
}

/**
 * Moves everything from the shared database into the folder of a stopped gateway.
 *
 * @param lost whether to go on without the shared database
 * @throws {OperatorError} when another gateway serves it
 */
export async function moveToOwn(settings: GatewayServerSettings, lost: boolean): Promise<void> {
  const log = await createLog('silent', 'json');
  const { shared, close } = await openForChanges(settings, { older: 'upgrade', moves: 'out', log });
  try {
    if (!lost && shared !== null) {
      const other = await shared.postgres.end(shared.node);
      if (other) throw stillServes(other);
      await shared.refresh();
    }
    shared?.detach();
  } finally {
    await close();
  }
  await withStore({ ...settings, databaseUrl: null }, (store) => noteMove(store, 'postgres', 'sqlite'));
}

function noteMove({ database, account: id }: Store, from: string, to: string): Promise<void> {
  const change = { table: 'database', before: { id, kind: from }, after: { id, kind: to } };
  return database.write(() => database.noteChange(change), BY_COMMAND);
}
