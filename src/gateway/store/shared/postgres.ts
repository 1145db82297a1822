import { randomUUID } from 'node:crypto';
import { OperatorError } from '../../../lib/errors.ts';
import { DatabaseAway } from '../sql/database-problems.ts';
import { type Ask, PostgresConnection, QUERY_MS } from './postgres-connection.ts';
import type { Position, SharedRow } from './replica.ts';

/** Oldest version of PostgreSQL, as its `server_version_num`. */
const MIN_SERVER = 140_000;
/** Longest answer to a statement that has everything in it. */
export const WHOLE_MS = 120_000;
/** Of the tables below: grows when an older program could not use them. */
const FORMAT = 1;
/** Instead, once a gateway has moved everything away. */
const ENDED = 0;
/** Days for which deletions are kept: a gateway that was away for longer copies everything. */
const KEEP_DAYS = 7;
/** Commits that are forgotten together: a statement that takes too long is cancelled. */
const FORGET_AT_ONCE = 50_000;

/**
 * `rows` has every row of every gateway's tables, as JSON, with the number of the commit that changed it last. `cluster` is one
 * row, whose number orders all commits.
 */
const SCHEMA = `
  CREATE SCHEMA IF NOT EXISTS device_agent;
  CREATE TABLE IF NOT EXISTS device_agent.cluster (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id text NOT NULL, format integer NOT NULL, version bigint NOT NULL,
    forgotten bigint NOT NULL -- deletions up to here are no longer known
  );
  CREATE TABLE IF NOT EXISTS device_agent.rows (
    tbl text NOT NULL, key text NOT NULL,
    row jsonb, -- null: deleted
    version bigint NOT NULL, PRIMARY KEY (tbl, key)
  );
  CREATE INDEX IF NOT EXISTS rows_by_version ON device_agent.rows (version);
  CREATE TABLE IF NOT EXISTS device_agent.commits (
    version bigint PRIMARY KEY, batch text NOT NULL UNIQUE, at timestamptz NOT NULL
  );
  CREATE TABLE IF NOT EXISTS device_agent.nodes (
    id text PRIMARY KEY, address text NOT NULL, alone boolean NOT NULL, build text NOT NULL, applied bigint NOT NULL,
    renewed timestamptz NOT NULL, draining boolean NOT NULL DEFAULT false
  );`;

/** Seconds without a word after which another gateway may have the address of one, such as the same machine with a new disk. */
const ADDRESS_KEPT_S = 10;

/** Any constant: two gateways may create the tables at the same time. */
const CREATION_LOCK = 7_232_190;

/** The shared database was moved away, see {@link Postgres.end}. */
export function movedAway(): OperatorError {
  return new OperatorError(
    'this shared database is not used any more: "device-agent gateway migrate --to sqlite" has moved everything to the DATA_DIR of ' +
      'one gateway. Start that one without GATEWAY_DATABASE_URL, or move it here again with "device-agent gateway migrate"; a new ' +
      'gateway needs an empty database',
    2,
  );
}

/** A gateway serves the shared database, and must not. */
export function stillServes({ id, address }: Node): OperatorError {
  return new OperatorError(
    `the gateway ${address} serves the shared database: stop it first; if its machine is lost, run "device-agent gateway nodes ` +
      `remove ${id}"`,
  );
}

/** A gateway that uses the shared database. */
export interface Node {
  readonly id: string;
  /** `host:port` at which other nodes reach it; its host name when it serves alone. */
  readonly address: string;
  /** Whether no other gateway may serve the same database. */
  readonly alone: boolean;
  readonly build: string;
  /** The change up to which its replica has everything. */
  readonly applied: number;
  /** Whether it is being emptied for an upgrade. */
  readonly draining: boolean;
  /** Seconds since it was last heard of, by the database's clock. */
  readonly silentSeconds: number;
  /** When it was last heard of, in Unix milliseconds of the database's clock. */
  readonly renewedAt: number;
}

async function nodesBy(ask: Ask): Promise<Node[]> {
  const rows = await ask<
    Pick<Node, 'id' | 'address' | 'alone' | 'draining' | 'build'> & { applied: string; silent: string; renewed: Date }
  >(
    `SELECT id, address, alone, draining, build, applied, renewed,
      EXTRACT(EPOCH FROM clock_timestamp() - renewed) AS silent
    FROM device_agent.nodes ORDER BY address, id`,
  );
  return rows.map(({ applied, silent, renewed, ...node }) => ({
    ...node,
    applied: Number(applied),
    silentSeconds: Number(silent),
    renewedAt: renewed.getTime(),
  }));
}

/** The shared database, in PostgreSQL. */
export class Postgres {
  readonly #connection: PostgresConnection;

  /** @param url `postgres://user:password@host:port/database`, with libpq's parameters such as `sslmode` */
  constructor(url: string) {
    this.#connection = new PostgresConnection(url);
  }

  /**
   * Creates the tables where they are missing. @returns the position after the last commit; null: nobody has used it yet
   * @throws {DatabaseAway} @throws {OperatorError} when it is too old, or its tables are from a newer version of this
   * program
   */
  async prepare(): Promise<Position | null> {
    const [server] = await this.#query<{ version: string; ready: boolean }>(
      `SELECT current_setting('server_version_num') AS version, to_regclass('device_agent.nodes') IS NOT NULL AS ready`,
    );
    if (Number(server?.version) < MIN_SERVER) throw new OperatorError('PostgreSQL is older than version 14');
    if (server?.ready !== true) await this.#query(`SELECT pg_advisory_xact_lock(${CREATION_LOCK}); ${SCHEMA}`);
    return this.head();
  }

  /** The position after the last commit; null for a database that nobody has used yet. @throws as {@link prepare} */
  async head(): Promise<Position | null> {
    const [head] = await this.#query<{ id: string; format: number; version: string; batch: string }>(
      'SELECT id, format, cluster.version, batch FROM device_agent.cluster JOIN device_agent.commits USING (version)',
    );
    if (!head) return null;
    if (head.format > FORMAT)
      throw new OperatorError('the shared database was written by a newer version of this program: use that version');
    return { cluster: head.id, version: Number(head.version), batch: head.batch };
  }

  /** Puts the first content into a database that nobody has used yet. @returns null when another gateway was faster */
  async fill(rows: readonly SharedRow[]): Promise<Position | null> {
    const position = { cluster: randomUUID(), version: 1, batch: randomUUID() };
    const filled = await this.#query(
      `WITH new AS (
        INSERT INTO device_agent.cluster VALUES (true, $1, ${FORMAT}, 1, 0) ON CONFLICT DO NOTHING RETURNING version
      ), content AS (
        INSERT INTO device_agent.rows SELECT tbl, key, row, version
        FROM new, jsonb_to_recordset($2) AS sent (tbl text, key text, row jsonb)
      )
      INSERT INTO device_agent.commits SELECT version, $3, clock_timestamp() FROM new RETURNING version`,
      [position.cluster, JSON.stringify(rows), position.batch],
      WHOLE_MS,
    );
    return filled.length === 0 ? null : position;
  }

  /** Whether a gateway has moved everything away. */
  async isEnded(): Promise<boolean> {
    return (await this.#query('SELECT FROM device_agent.cluster WHERE format = $1', [ENDED])).length > 0;
  }

  /**
   * Ends the use of the database, which keeps its rows: the gateway `id` moves everything away.
   * @returns another one that still serves it; null when nobody can use it any more
   */
  end(id: string): Promise<Node | null> {
    return this.#locked(async (ask) => {
      const other = (await nodesBy(ask)).find((node) => node.id !== id);
      if (other) return other;
      await ask('DELETE FROM device_agent.nodes');
      await ask('UPDATE device_agent.cluster SET format = $1', [ENDED]);
      return null;
    });
  }

  /** Deletes everything, if it has ended. */
  clear(): Promise<void> {
    return this.#locked(async (ask, isEnded) => {
      if (!isEnded) return;
      for (const table of ['rows', 'commits', 'cluster']) await ask(`DELETE FROM device_agent.${table}`);
    });
  }

  /**
   * Commits rows, if nobody else has committed since `seen`, up to which the caller knows everything.
   * @param batch random id, the same when a commit is tried again whose answer was lost
   * @param answerMs how long it may take
   * @returns the version of the commit; null when somebody else was faster
   */
  async commit(seen: Position, batch: string, rows: readonly SharedRow[], answerMs = QUERY_MS): Promise<number | null> {
    // A database that was put back may have as many commits again. Columns that only newer gateways know keep their values.
    const [done] = await this.#query<{ version: string }>(
      `WITH next AS (
        UPDATE device_agent.cluster SET version = version + 1
        WHERE version = $1 AND format <> ${ENDED}
          AND EXISTS (SELECT FROM device_agent.commits WHERE version = $1 AND batch = $4)
        RETURNING version
      ), changed AS (
        INSERT INTO device_agent.rows AS known SELECT tbl, key, row, version
        FROM next, jsonb_to_recordset($2) AS sent (tbl text, key text, row jsonb)
        ON CONFLICT (tbl, key) DO UPDATE SET row = COALESCE(known.row, '{}') || excluded.row, version = excluded.version
      )
      INSERT INTO device_agent.commits SELECT version, $3, clock_timestamp() FROM next RETURNING version`,
      [seen.version, JSON.stringify(rows), batch, seen.batch],
      answerMs,
    );
    return done ? Number(done.version) : this.#versionOf(batch);
  }

  async #versionOf(batch: string): Promise<number | null> {
    const sql = 'SELECT version FROM device_agent.commits WHERE batch = $1';
    const [row] = await this.#query<{ version: string }>(sql, [batch]);
    return row ? Number(row.version) : null;
  }

  /**
   * What a position is for this database. `past`: all changes since are known. `forgotten`: they are not, since it is too old.
   * `other`: the database was put back to an older state, or is another one.
   */
  async relationTo({ cluster, version, batch }: Position): Promise<'past' | 'forgotten' | 'other'> {
    const [row] = await this.#query<{ forgotten: boolean; known: boolean }>(
      `SELECT forgotten > $2 AS forgotten, EXISTS (
        SELECT FROM device_agent.commits WHERE commits.version = $2 AND batch = $3
      ) AS known FROM device_agent.cluster WHERE id = $1`,
      [cluster, version, batch],
    );
    if (row?.forgotten) return 'forgotten';
    return row?.known ? 'past' : 'other';
  }

  /** What has changed since a version, 0 for all rows that exist; and the position after it. */
  async rowsAfter(version: number): Promise<{ rows: SharedRow[]; position: Position | null }> {
    // One statement sees one state of the database.
    const found = await this.#query<{ id: string; head: string; batch: string } & SharedRow>(
      `SELECT id, cluster.version AS head, batch, tbl, key, row
      FROM device_agent.cluster JOIN device_agent.commits USING (version)
      LEFT JOIN device_agent.rows ON rows.version > $1 AND (row IS NOT NULL OR $1 > 0)`,
      [version],
      version === 0 ? WHOLE_MS : QUERY_MS,
    );
    const [first] = found;
    // Even a new one has an account.
    if (version === 0 && first?.tbl === null) throw new DatabaseAway('it is being restored', null, true);
    if (!first) return { rows: [], position: null };
    const position = { cluster: first.id, version: Number(first.head), batch: first.batch };
    return { rows: found.flatMap(({ tbl, key, row }) => (tbl === null ? [] : [{ tbl, key, row }])), position };
  }

  async forget(): Promise<void> {
    await this.#query(
      `WITH old AS (
        SELECT max(version) AS version FROM (
          SELECT version FROM device_agent.commits WHERE at < now() - interval '${KEEP_DAYS} days'
          ORDER BY version LIMIT ${FORGET_AT_ONCE}
        ) AS some
      ), cut AS (
        UPDATE device_agent.cluster SET forgotten = old.version FROM old WHERE old.version > forgotten RETURNING forgotten
      ), deleted AS (
        DELETE FROM device_agent.rows USING cut WHERE row IS NULL AND rows.version <= cut.forgotten
      )
      DELETE FROM device_agent.commits USING cut, device_agent.cluster
      WHERE commits.version < cut.forgotten AND commits.version <> cluster.version`,
    );
  }

  /**
   * Makes a gateway one that serves this database. One that is silent may still serve: it stays until somebody {@link
   * leave}s for it.
   * @param again whether it has served this database until it was put back to an older state: that may name gateways which have
   * served before, and are silent
   * @returns one that is in its way: either serves alone, or it has the same address; null when this one serves now
   * @throws {OperatorError} when the database has ended
   */
  async enter(
    { id, address, alone, build, applied }: Omit<Node, 'silentSeconds' | 'renewedAt' | 'draining'>,
    again = false,
  ): Promise<Node | null> {
    return this.#locked(async (ask, isEnded) => {
      if (isEnded) throw movedAway();
      const isHeard = (node: Node) => node.silentSeconds < ADDRESS_KEPT_S;
      const isInTheWay = (node: Node) => alone || node.alone || (node.address === address && isHeard(node));
      const others = (await nodesBy(ask)).filter((node) => node.id !== id && isInTheWay(node));
      const other = others.find((node) => isHeard(node) || !again);
      if (other) return other;
      for (const old of others) await ask('DELETE FROM device_agent.nodes WHERE id = $1', [old.id]);
      const sql = `INSERT INTO device_agent.nodes VALUES ($1, $2, $3, $4, $5, clock_timestamp()) ON CONFLICT (id)
        DO UPDATE SET address = excluded.address, alone = excluded.alone, build = excluded.build,
        applied = excluded.applied, renewed = excluded.renewed, draining = false`;
      await ask(sql, [id, address, alone, build, applied]);
      return null;
    });
  }

  /** @returns whether the gateway still is one that serves this database; not if another one has started with its DATA_DIR */
  async renew({ id, address }: Pick<Node, 'id' | 'address'>, applied: number): Promise<boolean> {
    const sql =
      'UPDATE device_agent.nodes SET renewed = clock_timestamp(), applied = $3 WHERE id = $1 AND address = $2 RETURNING id';
    return (await this.#query(sql, [id, address, applied])).length > 0;
  }

  /** @returns whether it was one that serves this database */
  async leave(id: string): Promise<boolean> {
    return (await this.#query('DELETE FROM device_agent.nodes WHERE id = $1 RETURNING id', [id])).length > 0;
  }

  /** @returns whether it is one that serves this database */
  async drain(id: string): Promise<boolean> {
    return (
      (await this.#query('UPDATE device_agent.nodes SET draining = true WHERE id = $1 RETURNING id', [id])).length > 0
    );
  }

  /** How many sessions and endpoints are online at each node, by its id. */
  async online(): Promise<Map<string, { sessions: number; endpoints: number }>> {
    const rows = await this.#query<{ node: string; sessions: string; endpoints: string }>(
      `SELECT row->>'node' AS node, count(*) FILTER (WHERE row->>'key' LIKE '% ts\\_%') AS sessions,
        count(*) FILTER (WHERE row->>'key' LIKE '% ep\\_%') AS endpoints
      FROM device_agent.rows WHERE tbl = 'online' AND row IS NOT NULL GROUP BY 1`,
    );
    return new Map(
      rows.map(({ node, sessions, endpoints }) => [node, { sessions: Number(sessions), endpoints: Number(endpoints) }]),
    );
  }

  nodes(): Promise<Node[]> {
    return nodesBy((...question) => this.#query(...question));
  }

  /** The database's version, and how many milliseconds its clock is ahead of this machine's. */
  async facts(): Promise<{ server: string; clockAheadMs: number }> {
    const before = Date.now();
    const [row] = await this.#query<{ server: string; now: string }>(
      `SELECT current_setting('server_version') AS server, EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS now`,
    );
    const now = (before + Date.now()) / 2;
    return { server: row?.server ?? '', clockAheadMs: Math.round(Number(row?.now) - now) };
  }

  close(): Promise<void> {
    return this.#connection.close();
  }

  #query<Row>(text: string, values: readonly unknown[] = [], answerMs = QUERY_MS): Promise<Row[]> {
    return this.#connection.ask<Row>(text, values, answerMs);
  }

  /** Changes who may use the database, while nobody else does. */
  #locked<T>(work: (ask: Ask, isEnded: boolean) => Promise<T>): Promise<T> {
    return this.#connection.transaction(async (ask) => {
      // A lock that is taken in the same statement would come after what that has seen.
      const [cluster] = await ask<{ format: number }>('SELECT format FROM device_agent.cluster FOR UPDATE');
      return work(ask, cluster?.format === ENDED);
    });
  }
}
