import { randomUUID } from 'node:crypto';
import type { Socket } from 'node:net';
import { OperatorError } from '../../../lib/errors.ts';
import { ownCommand } from '../../../lib/process/own-command.ts';
import { DatabaseAway } from '../sql/database-problems.ts';
import type { RowsRead } from '../sql/group-commit.ts';
import type { RowText } from './incoming-rows.ts';
import { type Ask, type Detours, PostgresConnection, QUERY_MS, type Statement } from './postgres-connection.ts';
import { type Commit, commitId, type Kept, SQL_COMMIT_ID } from './replica-past.ts';
import {
  PART_OF_ROW,
  type Position,
  partName,
  rowName,
  type SharedRow,
  sqlSum,
  type Tables,
} from './replica-tables.ts';

/** Oldest version of PostgreSQL, as its `server_version_num`. */
const MIN_SERVER = 140_000;
/** Longest answer to a statement that reads or writes everything. */
export const WHOLE_MS = 120_000;
/** Longest answer with a page: a slow link takes as long as it takes, as long as something comes. */
const PAGE_MS = 120_000;
/** Of the tables below: grows when an older program could not use them. */
const FORMAT = 1;
/** Instead, once a gateway has moved everything away. */
const ENDED = 0;
/** Days for which deletions are kept: a gateway that was away for longer copies everything. */
const KEEP_DAYS = 7;
/** Most revocations that a gateway learns of before everything else that it lacks: some hundred kilobytes. */
const MOST_REVOKED = 5_000;
/** Most commits that a page names: some 50 kilobytes. */
const MOST_COMMITS = 1_000;
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
  CREATE INDEX IF NOT EXISTS rows_in_order ON device_agent.rows (version, tbl, key);
  DROP INDEX IF EXISTS device_agent.rows_by_version;
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
export const CREATION_LOCK = 7_232_190;

/** The shared database was moved away, see {@link Postgres.end}. */
export function movedAway(): OperatorError {
  return new OperatorError(
    'this shared database is not used any more: "gateway migrate --to sqlite" has moved everything to the DATA_DIR of ' +
      `one gateway. Start that one without GATEWAY_DATABASE_URL, or move it here again with "${ownCommand('gateway migrate')}"; a new ` +
      'gateway needs an empty database',
    2,
  );
}

/** A gateway serves the shared database, and must not. */
export function stillServes({ id, address }: Node): OperatorError {
  return new OperatorError(
    `the gateway ${address} serves the shared database: stop it first; if its machine is lost, run ` +
      `"${ownCommand(`gateway nodes remove ${id}`)}"`,
  );
}

/** Part of an answer that may be too long for a slow link. */
export interface CommitPage {
  /** The position after the last commit; null: nobody has used the database yet. */
  readonly head: Position | null;
  /** Deletions up to this change are no longer known. */
  readonly forgotten: number;
  /** Whether the commit that the caller has seen last is one of this database. */
  readonly isKnown: boolean;
  /** Those since then, the newest ones, if that is so. */
  readonly commits: readonly Commit[];
  readonly rows: readonly (RowText & { readonly version: number })[];
  readonly hasMore: boolean;
}

export interface PageSize {
  readonly rows: number;
  /** Exceeded by one row at most. */
  readonly bytes: number;
}

interface PageState extends Position, Pick<CommitPage, 'forgotten' | 'isKnown'> {
  readonly found: number;
  readonly commits: readonly CommitText[] | null;
}

type CommitText = readonly [version: number, id: string, at: number];

function commitOf([version, id, at]: CommitText): Commit {
  return { version, id, at };
}

/** As {@link CommitText}: the newest commits after $1. */
const SQL_COMMITS = `SELECT jsonb_agg(jsonb_build_array(version, id, at) ORDER BY version) FROM (
  SELECT version, ${SQL_COMMIT_ID} AS id, floor(EXTRACT(EPOCH FROM at) * 1000) AS at
  FROM device_agent.commits WHERE version > $1 ORDER BY version DESC LIMIT ${MOST_COMMITS}
) AS newest`;

/** Makes others wait that commit: what follows in the transaction sees all commits, and comes next. */
const LOCK = 'SELECT FROM device_agent.cluster FOR UPDATE';

/** A commit of the rows $2 with the batch $3, on a condition about the one row of `cluster`. */
const sqlCommit = (condition: string) => `WITH next AS (
    UPDATE device_agent.cluster SET version = version + 1
    WHERE format <> ${ENDED} AND EXISTS (SELECT FROM device_agent.commits WHERE version = $1 AND batch = $4) AND ${condition}
    RETURNING version
  ), changed AS (
    INSERT INTO device_agent.rows AS known SELECT tbl, key, row, version
    FROM next, jsonb_to_recordset($2) AS sent (tbl text, key text, row jsonb)
    ON CONFLICT (tbl, key) DO UPDATE SET row = COALESCE(known.row, '{}') || excluded.row, version = excluded.version
  )
  INSERT INTO device_agent.commits SELECT version, $3, clock_timestamp() FROM next RETURNING version, at`;

/** Nobody else has committed since $1. */
const SQL_COMMIT_NEXT = sqlCommit('version = $1');

/** Nobody else has changed what is sent since $1, nor what has decided about it, $5. */
const SQL_COMMIT_APART = sqlCommit(`forgotten <= $1 AND NOT EXISTS (
  SELECT FROM device_agent.rows AS later WHERE version > $1 AND (
    EXISTS (SELECT FROM jsonb_to_recordset($2) AS sent (tbl text, key text) WHERE (tbl, key) = (later.tbl, later.key))
    OR EXISTS (
      SELECT FROM jsonb_to_recordset($5) AS read ("table" text, "column" text, value text)
      WHERE "table" = later.tbl AND value = later.row->>"column"
    )
  )
)`);

/** With its values in the text: only statements without values are sent together, and executed without a wait in between. */
function inlined({ text, values }: Statement): string {
  const quoted = (value: unknown) => `E'${String(value).replaceAll('\\', '\\\\').replaceAll("'", "''")}'`;
  return text.replace(/\$(\d+)/g, (_, place) => quoted(values[Number(place) - 1]));
}

interface PageRow {
  readonly n: string;
  readonly tbl: string;
  readonly key: string;
  readonly row: string | null;
  readonly version: string;
}

interface CommitRow {
  readonly version: string;
  readonly at: Date;
}

function madeBy({ version, at }: CommitRow, batch: string): Commit {
  return { ...commitId({ version: Number(version), batch }), at: at.getTime() };
}

/** A database that was put back may have as many commits again. Columns that only newer gateways know keep their values. */
function commitNext(seen: Position, batch: string, rows: readonly SharedRow[]): Statement {
  return { text: SQL_COMMIT_NEXT, values: [seen.version, JSON.stringify(rows), batch, seen.batch] };
}

/** Which rows a page has, and in which order; its own values begin with $5. */
interface Wanted {
  readonly source: string;
  readonly order: string;
  readonly values: readonly unknown[];
}

/** Rows that have changed, after one of them. */
function changesFrom(values: readonly [version: number, tbl: string, key: string]): Wanted {
  const source = 'SELECT tbl, key, row, version FROM device_agent.rows WHERE (version, tbl, key) > ($5, $6, $7)';
  return { source, order: 'version, tbl, key', values };
}

const changesSince = ({ version }: Position) => changesFrom([version + 1, '', '']);

/** One statement sees one state of the database. */
function pageOf(seen: Position, { source, order, values }: Wanted, size: PageSize): Statement {
  return {
    text: `WITH next AS MATERIALIZED (
      SELECT tbl, key, row::text AS row, version FROM (${source}) AS later ORDER BY ${order} LIMIT $3
    ), sized AS (
      SELECT *, octet_length(key) + COALESCE(octet_length(row), 0) AS size FROM next
    ), numbered AS (
      SELECT *, row_number() OVER page AS n, sum(size) OVER page - size AS before
      FROM sized WINDOW page AS (ORDER BY ${order} ROWS UNBOUNDED PRECEDING)
    )
    SELECT 0 AS n, '' AS tbl, '' AS key, jsonb_build_object(
      'cluster', id, 'version', version, 'batch', batch, 'forgotten', forgotten, 'found', (SELECT count(*) FROM next),
      'isKnown', EXISTS (SELECT FROM device_agent.commits AS own WHERE own.version = $1 AND own.batch = $2),
      'commits', (${SQL_COMMITS})
    )::text AS row, 0 AS version FROM device_agent.cluster JOIN device_agent.commits USING (version)
    UNION ALL SELECT n, tbl, key, row, version FROM numbered WHERE before < $4
    ORDER BY n`,
    values: [seen.version, seen.batch, size.rows, size.bytes, ...values],
  };
}

function pageFrom(seen: Position, size: PageSize, found: readonly PageRow[]): CommitPage {
  const [first] = found;
  if (first?.n !== '0') return { head: null, forgotten: 0, isKnown: false, commits: [], rows: [], hasMore: false };
  const state = JSON.parse(first.row ?? '') as PageState;
  const { cluster, version, batch, forgotten } = state;
  const isKnown = state.isKnown && cluster === seen.cluster;
  const rows = found.slice(1).map(({ tbl, key, row, version }) => ({ tbl, key, row, version: Number(version) }));
  const hasMore = state.found === size.rows || rows.length < state.found;
  return {
    head: { cluster, version, batch },
    forgotten,
    isKnown,
    commits: isKnown ? (state.commits ?? []).map(commitOf) : [],
    rows,
    hasMore,
  };
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

  /** See {@link PostgresConnection.detourBy}. */
  detourBy(detours: Detours): void {
    this.#connection.detourBy(detours);
  }

  /** See {@link PostgresConnection.detour}. */
  get detour(): PostgresConnection['detour'] {
    return this.#connection.detour;
  }

  /** See {@link PostgresConnection.dial}. */
  dial(): Promise<Socket> {
    return this.#connection.dial();
  }

  /**
   * Creates the tables where they are missing. @returns the position after the last commit; null: nobody has used it yet
   * @throws {DatabaseAway} @throws {OperatorError} when it is too old, or its tables are from a newer version of this
   * program
   */
  async prepare(): Promise<Position | null> {
    const [server] = await this.#query<{ version: string; ready: boolean; isFast: boolean }>(
      `SELECT current_setting('server_version_num') AS version, to_regclass('device_agent.nodes') IS NOT NULL AS ready,
        to_regclass('device_agent.rows_in_order') IS NOT NULL AS "isFast"`,
    );
    if (Number(server?.version) < MIN_SERVER) throw new OperatorError('PostgreSQL is older than version 14');
    if (server?.ready === true && server.isFast) return this.head();
    const create = this.#query(`SELECT pg_advisory_xact_lock(${CREATION_LOCK}); ${SCHEMA}`, [], WHOLE_MS);
    await create.catch((error: unknown) => {
      // Without the new index, pages take longer: another role may own the tables, or somebody locks them.
      if (server?.ready !== true || !(error instanceof DatabaseAway && error.isUntried)) throw error;
    });
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
   * @returns the commit; null when somebody else was faster
   */
  async commit(seen: Position, batch: string, rows: readonly SharedRow[], answerMs = QUERY_MS): Promise<Commit | null> {
    const { text, values } = commitNext(seen, batch, rows);
    const [done] = await this.#query<CommitRow>(text, values, answerMs);
    return done ? madeBy(done, batch) : this.made(batch);
  }

  /** The commit with a batch; null: there is none. */
  async made(batch: string): Promise<Commit | null> {
    const sql = 'SELECT version, at FROM device_agent.commits WHERE batch = $1';
    const [done] = await this.#query<CommitRow>(sql, [batch]);
    return done ? madeBy(done, batch) : null;
  }

  /**
   * Commits rows, if nobody else has changed them since `seen`, nor what has decided about them, whatever else was committed. Others
   * wait for it as long as the server takes, not the network. When its answer was lost, it may still be under way.
   * @param reads what has decided about them besides themselves
   * @returns the changes since `seen`; if it was committed, that is the page's head
   */
  async commitApart(
    seen: Position,
    batch: string,
    { rows, reads }: { rows: readonly SharedRow[]; reads: readonly RowsRead[] },
    size: PageSize,
  ): Promise<CommitPage> {
    const values = [seen.version, JSON.stringify(rows), batch, seen.batch, JSON.stringify(reads)];
    const statements = [{ text: SQL_COMMIT_APART, values }, pageOf(seen, changesSince(seen), size)];
    const text = [LOCK, ...statements.map(inlined)].join('; ');
    return pageFrom(seen, size, await this.#connection.ask<PageRow>(text));
  }

  /**
   * Commits as the next one, while others wait. Nothing else may be asked meanwhile.
   * @param then gets the changes since `seen`; returns what is committed, and the position after them, or null
   * @returns null when nothing was committed
   */
  async commitInTurn(
    seen: Position,
    batch: string,
    size: PageSize,
    then: (page: CommitPage) => Promise<{ seen: Position; rows: readonly SharedRow[] } | null>,
  ): Promise<Commit | null> {
    const text = `${LOCK}; ${inlined(pageOf(seen, changesSince(seen), size))}`;
    const found = await this.#connection.askTwice<PageRow, CommitRow>({ text, values: [] }, async (page) => {
      const next = await then(pageFrom(seen, size, page));
      return next && commitNext(next.seen, batch, next.rows);
    });
    const [done] = found ?? [];
    return done ? madeBy(done, batch) : null;
  }

  /** The newest commits after one, oldest first. */
  async commitsAfter(version: number): Promise<Commit[]> {
    const [row] = await this.#connection.ask<{ commits: readonly CommitText[] | null }>(
      `SELECT (${SQL_COMMITS}) AS commits`,
      [version],
      PAGE_MS,
      QUERY_MS,
    );
    return (row?.commits ?? []).map(commitOf);
  }

  /** Which of a gateway's commits it still has. */
  async kept(commits: readonly Pick<Commit, 'version' | 'id'>[]): Promise<Kept> {
    const [row] = await this.#query<{ forgotten: string; common: string | null; event: string | null }>(
      `WITH common AS MATERIALIZED (
        SELECT max(version) AS version FROM device_agent.commits
        JOIN unnest($1::bigint[], $2::text[]) AS own (version, id) USING (version) WHERE ${SQL_COMMIT_ID} = own.id
      )
      SELECT forgotten, common.version AS common, (
        SELECT max((key::jsonb->>0) COLLATE "C") FROM device_agent.rows
        WHERE tbl IN ('audit_log', 'activity_events') AND rows.version <= common.version
      ) AS event FROM device_agent.cluster, common`,
      [commits.map(({ version }) => version), commits.map(({ id }) => id)],
      WHOLE_MS,
    );
    const common = row?.common ?? null;
    return {
      common: common === null ? null : Number(common),
      forgotten: Number(row?.forgotten ?? 0),
      event: row?.event ?? '',
    };
  }

  /**
   * Rows that have changed, in the order of commits. When there are no more, everything up to the page's head has been sent.
   * @param seen the last commit that the caller has seen @param after the last row that it has
   */
  changesAfter(
    seen: Position,
    [version, tbl, key]: readonly [version: number, tbl: string, key: string],
    size: PageSize,
  ): Promise<CommitPage> {
    return this.#page(seen, changesFrom([version, tbl, key]), size, QUERY_MS);
  }

  /** Authtokens and API keys that were revoked since a version, and bots that were deleted or deactivated. */
  async revokedSince(version: number): Promise<SharedRow[]> {
    return this.#query<SharedRow>(
      `SELECT tbl, key, row FROM device_agent.rows WHERE version > $1 AND (
        tbl IN ('api_keys', 'credentials') AND row IS NULL OR tbl = 'bot_users' AND COALESCE(row->>'active', '0') = '0'
      ) ORDER BY version DESC LIMIT ${MOST_REVOKED}`,
      [version],
    );
  }

  /**
   * All rows of some tables, in the order of their keys, as they are when their page is sent.
   * @param parts the parts of tables to which they are limited, by name; null: all @param after the last row that the caller has
   */
  rowsAfter(
    seen: Position,
    { tables, parts }: { tables: Tables; parts: readonly string[] | null },
    [tbl, key]: readonly [tbl: string, key: string],
    size: PageSize,
  ): Promise<CommitPage> {
    const names = [...tables.keys()].filter((table) => parts?.some((part) => part.startsWith(`${table} `)) ?? true);
    const source = `SELECT tbl, key, row, version FROM device_agent.rows
      WHERE (tbl, key) > ($5, $6) AND row IS NOT NULL AND tbl = ANY($7)
        AND ($8::text[] IS NULL OR tbl || ' ' || ${PART_OF_ROW} = ANY($8))`;
    // To find few rows among many takes the server some time.
    const silenceMs = parts === null ? QUERY_MS : WHOLE_MS;
    return this.#page(seen, { source, order: 'tbl, key', values: [tbl, key, names, parts] }, size, silenceMs);
  }

  async #page(seen: Position, wanted: Wanted, size: PageSize, silenceMs: number): Promise<CommitPage> {
    const { text, values } = pageOf(seen, wanted, size);
    return pageFrom(seen, size, await this.#connection.ask<PageRow>(text, values, PAGE_MS, silenceMs));
  }

  /**
   * What the tables have, summed up for each of their parts, without rows that have changed since a version.
   * @returns also the names of those rows
   */
  async digests(tables: Tables, version: number): Promise<{ sums: ReadonlyMap<string, bigint>; changed: string[] }> {
    const sums = [...tables.values()].map(
      (table) =>
        `SELECT '${table.name}' AS tbl, ${PART_OF_ROW}::text AS part, ${sqlSum(table)}::text AS sum FROM device_agent.rows
        WHERE tbl = '${table.name}' AND row IS NOT NULL AND version <= $1 GROUP BY part`,
    );
    const found = await this.#query<{ tbl: string; part: string; sum: string | null }>(
      `SELECT tbl, key AS part, NULL AS sum FROM device_agent.rows WHERE version > $1 UNION ALL ${sums.join(' UNION ALL ')}`,
      [version],
      WHOLE_MS,
    );
    return {
      changed: found.filter(({ sum }) => sum === null).map(({ tbl, part: key }) => rowName({ tbl, key })),
      sums: new Map(
        found.flatMap(({ tbl, part, sum }) => (sum === null ? [] : [[partName(tbl, Number(part)), BigInt(sum)]])),
      ),
    };
  }

  /** One row as it is; null: there is none. */
  async rowAt(tbl: string, key: string): Promise<SharedRow['row']> {
    const sql = 'SELECT row FROM device_agent.rows WHERE tbl = $1 AND key = $2';
    const [found] = await this.#query<Pick<SharedRow, 'row'>>(sql, [tbl, key]);
    return found?.row ?? null;
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

  /**
   * @returns all gateways that serve this database; null when this one is none of them any more, for example since another one has
   * started with its DATA_DIR
   */
  async renew({ id, address }: Pick<Node, 'id' | 'address'>, applied: number): Promise<Node[] | null> {
    const text =
      'UPDATE device_agent.nodes SET renewed = clock_timestamp(), applied = $3 WHERE id = $1 AND address = $2';
    const renew = inlined({ text, values: [id, address, applied] });
    const nodes = await nodesBy((text) => this.#query(`${renew}; ${text}`));
    return nodes.some((node) => node.id === id && node.address === address) ? nodes : null;
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

  /** Statements about what is no part of the shared content: nobody's commit waits for them. @throws {DatabaseAway} */
  readonly ask: Ask = (...statement) => this.#query(...statement);

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
