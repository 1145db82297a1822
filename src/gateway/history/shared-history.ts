import { CREATION_LOCK } from '../store/shared/postgres.ts';
import type { Ask } from '../store/shared/postgres-connection.ts';
import {
  type Away,
  type HistoryFile,
  type HistorySubject,
  isNamedByHost,
  MINUTES,
  type NewAway,
  type NewHistoryRow,
  type NewRun,
  type Run,
  SLOT_MINUTES,
} from './history-file.ts';
import { type HistoryPart, type HistoryRange, levelOf, type SubjectName } from './history-points.ts';
import { Values } from './history-values.ts';

/** The hostname or IP address in the URL of an endpoint; null in labels of a tunnel. */
function hostOf(key: string): string {
  return `substring(${key} FROM '://(\\[[^]]*\\]|[^:/]*)')`;
}

/**
 * Outside the order of commits, and of no gateway's copy: no commit waits for it, and a gateway that is late has it in its own file. A row
 * by the hour or the day has all numbers of one gateway.
 */
const SCHEMA = `
  CREATE TABLE device_agent.history (
    node text NOT NULL, level text NOT NULL, kind text NOT NULL, key text NOT NULL, device text NOT NULL,
    at bigint NOT NULL, numbers double precision[] NOT NULL, refusals jsonb,
    PRIMARY KEY (kind, key, level, at, node, device)
  );
  CREATE INDEX history_of_devices ON device_agent.history (device, level, at) WHERE device <> '';
  CREATE INDEX history_by_time ON device_agent.history (level, at);
  CREATE TABLE device_agent.history_runs (
    node text NOT NULL, kind text NOT NULL, key text NOT NULL, device text NOT NULL,
    since bigint NOT NULL, until bigint, PRIMARY KEY (kind, key, since, node, device)
  );
  CREATE INDEX history_runs_of_hosts ON device_agent.history_runs ((${hostOf('key')})) WHERE kind = 'endpoint';
  CREATE TABLE device_agent.history_away (
    node text NOT NULL, device text NOT NULL, at bigint NOT NULL, seconds integer NOT NULL,
    machine double precision[] NOT NULL, PRIMARY KEY (device, at, node)
  );
  CREATE TABLE device_agent.history_nodes (node text PRIMARY KEY, written bigint NOT NULL);
`;

/** Tables that exist are left alone: an index on a large one takes minutes, for which commits would wait. */
const PREPARATION = `
  SELECT pg_advisory_xact_lock(${CREATION_LOCK});
  DO $prepare$ BEGIN IF to_regclass('device_agent.history_nodes') IS NULL THEN ${SCHEMA} END IF; END $prepare$
`;

/** Rows in a statement: others wait for it on the same connection. */
const AT_ONCE = 1_000;
const FORGET_AT_ONCE = 10_000;
/** Hours are kept so long, in minutes. */
const KEPT_HOURS = 30 * MINUTES.days;

/** What all gateways of a shared database keep of their histories, for when one of them is gone. */
export class SharedHistory {
  #isReady = false;

  constructor(
    private readonly ask: Ask,
    /** What this gateway is called. */
    private readonly node: string,
    private readonly days: number,
  ) {}

  /** Passes on what the file has of complete hours and days. @throws {DatabaseAway} */
  async take(file: HistoryFile): Promise<void> {
    let isNewDay = false;
    for (const level of ['hours', 'days'] as const)
      for (;;) {
        const complete = await file.completeRows(level);
        if (complete === null) break;
        await this.#prepare();
        for (const part of parts(complete.rows)) await this.#put(file, level, part);
        await file.passedOn(level, complete.until);
        isNewDay = level === 'days';
      }
    const { rows: runs, away, until } = file.news();
    if (runs.length + away.length === 0 && !isNewDay) return;
    await this.#prepare();
    for (const part of parts(runs)) await this.#putRuns(file, part);
    for (const part of parts(away)) await this.#putAway(file, part);
    await this.ask(
      'INSERT INTO device_agent.history_nodes VALUES ($1, $2) ON CONFLICT (node) DO UPDATE SET written = excluded.written',
      [this.#nameOf(file), until],
    );
    await file.passedOn('runs', until);
    if (isNewDay) await this.#forget(Math.floor(until / 60));
  }

  /** A gateway that has lost its file, and has begun another one, has both here. */
  #nameOf({ begun }: Pick<HistoryFile, 'begun'>): string {
    return nameOf(this.node, begun);
  }

  /**
   * What gateways have passed on that are not asked themselves. @param asked those that are, with when their files begin, in
   * minutes: what they had in others before is in nobody's file @throws {DatabaseAway}
   */
  async part(
    of: SubjectName,
    { from, to, step }: HistoryRange,
    asked: ReadonlyMap<string, number>,
  ): Promise<HistoryPart> {
    await this.#prepare();
    const names = namesOf(asked);
    const level = levelOf(step);
    const runs = (kind: HistorySubject['kind'], key: string) => this.#runs(kind, key, { from, to, step });
    const own = await runs(of.kind, of.key);
    return {
      // Minutes are in the files alone.
      rows: level === 'minutes' ? [] : await this.#rows(of, level, { from, to, step }, names),
      runs: own,
      known: of.kind === 'gateway' ? own : await runs('gateway', ''),
      away: of.kind === 'gateway' ? [] : await this.#away(of, { from, to, step }, names),
      seen: await this.#firstSeen(of),
    };
  }

  /**
   * The same of many, by the hour: of what was counted, the requests alone. Endpoints are named by their URLs.
   * @returns nothing when all gateways that have passed something on are asked
   */
  async briefParts(
    of: readonly SubjectName[],
    { from, to, step }: HistoryRange,
    asked: ReadonlyMap<string, number>,
  ): Promise<HistoryPart[]> {
    await this.#prepare();
    const nodes = await this.ask<{ node: string }>('SELECT node FROM device_agent.history_nodes');
    const names = namesOf(asked);
    if (nodes.every(({ node }) => names.includes(node))) return [];
    const keys = of.map(({ key }) => key);
    const known = await this.#runs('gateway', '', { from, to, step });
    const rows = await this.ask<{ key: string; device: string; at: string; requests: number }>(
      `SELECT key, device, at, numbers[1] AS requests FROM device_agent.history
      WHERE level = 'hours' AND kind = 'endpoint' AND (key = ANY($4) OR device = ANY($4))
        AND at >= $1 AND at < $2 AND node <> ALL($3)`,
      [from, to, names, keys],
    );
    const runs = await this.ask<{ kind: string; key: string; since: string; until: string }>(
      `SELECT kind, key, since, coalesce(until, written) AS until
      FROM device_agent.history_runs JOIN device_agent.history_nodes USING (node)
      WHERE kind IN ('endpoint', 'device') AND key = ANY($4) AND (until IS NULL OR until > $1) AND since < $2
        AND node <> ALL($3)`,
      [from * 60, to * 60, names, keys],
    );
    const seen = await this.ask<{ kind: string; key: string; first: string }>(
      `SELECT kind, key, min(since) AS first FROM device_agent.history_runs
      WHERE kind IN ('endpoint', 'device') AND key = ANY($1) GROUP BY kind, key`,
      [keys],
    );
    return of.map(({ kind, key }) => {
      const first = seen.find((each) => each.kind === kind && each.key === key)?.first;
      const own = runs.filter((run) => run.kind === kind && run.key === key);
      return {
        rows: rows
          .filter((row) => (kind === 'device' ? row.device : row.key) === key)
          .map(({ at, requests }) => ({ at: Number(at), values: Values.of([requests], null) })),
        runs: own
          .map(({ since, until }) => ({ since: Number(since), until: Number(until) }))
          .filter(({ since, until }) => since < until),
        ...{ known, away: [], seen: first === undefined ? null : Number(first) },
      };
    });
  }

  async #rows(
    { kind, key }: SubjectName,
    level: 'hours' | 'days',
    { from, to }: HistoryRange,
    names: readonly string[],
  ): Promise<HistoryPart['rows']> {
    const which = {
      gateway: "kind = 'gateway'",
      device: "device = $4 AND kind IN ('endpoint', 'device')",
      endpoint: `kind = 'endpoint' AND ${keyIs(kind, key, '$4')}`,
    }[kind];
    const rowsOf = (of: 'hours' | 'days') =>
      `SELECT at, numbers, refusals FROM device_agent.history AS row
      WHERE ${which} AND level = '${of}' AND at >= $1 AND at < $2 AND node <> ALL($3)`;
    // The last day of a gateway that is gone is there by the hour alone.
    const rows = await this.ask<{ at: string; numbers: number[]; refusals: Values['tallies'] }>(
      level === 'hours' ? rowsOf('hours') : `${rowsOf('days')} UNION ALL ${rowsOf('hours')} AND NOT ${IS_SUMMED_UP}`,
      [from, to, names, ...(kind === 'gateway' ? [] : [key])],
    );
    return rows.map(({ at, numbers, refusals }) => ({ at: Number(at), values: Values.of(numbers, refusals) }));
  }

  /** Of all gateways: those that are asked know it as well, or later. */
  async #firstSeen({ kind, key }: SubjectName): Promise<number | null> {
    const [which, keys] = kind === 'gateway' ? ['', []] : [`AND ${keyIs(kind, key, '$2')}`, [key]];
    const [row] = await this.ask<{ since: string | null }>(
      `SELECT min(since) AS since FROM device_agent.history_runs WHERE kind = $1 ${which}`,
      [kind, ...keys],
    );
    return row === undefined || row.since === null ? null : Number(row.since);
  }

  /** Of all gateways: those that are asked keep theirs for a month. */
  async #runs(kind: HistorySubject['kind'], key: string, { from, to }: HistoryRange): Promise<Run[]> {
    const rows = await this.ask<{ since: string; until: string }>(
      `WITH ended AS (
        SELECT since, coalesce(until, written) AS until
        FROM device_agent.history_runs JOIN device_agent.history_nodes USING (node)
        WHERE kind = $3 AND since < $2 ${kind === 'gateway' ? '' : `AND ${keyIs(kind, key, '$4')}`}
      )
      SELECT since, until FROM ended WHERE until > $1 AND until > since`,
      [from * 60, to * 60, kind, ...(kind === 'gateway' ? [] : [key])],
    );
    return rows.map(({ since, until }) => ({ since: Number(since), until: Number(until) }));
  }

  async #away({ kind, key }: SubjectName, { from, to }: HistoryRange, names: readonly string[]): Promise<Away[]> {
    const bound = `IN (SELECT device FROM device_agent.history_runs WHERE kind = 'endpoint' AND ${keyIs('endpoint', key, '$4')})`;
    const rows = await this.ask<{ at: string; seconds: number; machine: Away['machine'] }>(
      `SELECT at, seconds, machine FROM device_agent.history_away
      WHERE device ${kind === 'device' ? '= $4' : bound} AND at > $1 AND at < $2 AND node <> ALL($3)`,
      [from - SLOT_MINUTES, to, names, key],
    );
    return rows.map(({ at, ...row }) => ({ at: Number(at), ...row }));
  }

  async #prepare(): Promise<void> {
    if (this.#isReady) return;
    await this.ask(PREPARATION);
    this.#isReady = true;
  }

  async #put(file: HistoryFile, level: 'hours' | 'days', rows: readonly NewHistoryRow[]): Promise<void> {
    // The seconds online are in the runs, which are kept as long as the days.
    const sent = rows.map(({ of, at, values }) => ({
      ...{ ...named(of), at, numbers: [...values.numbers.subarray(0, -1), 0], refusals: values.tallies },
    }));
    await this.ask(
      `INSERT INTO device_agent.history
      SELECT $1, $2, kind, key, device, at, numbers, refusals FROM jsonb_to_recordset($3::jsonb)
        AS row (kind text, key text, device text, at bigint, numbers double precision[], refusals jsonb)
      ON CONFLICT (kind, key, level, at, node, device) DO UPDATE SET numbers = excluded.numbers, refusals = excluded.refusals`,
      [this.#nameOf(file), level, JSON.stringify(sent)],
    );
  }

  async #putRuns(file: HistoryFile, runs: readonly NewRun[]): Promise<void> {
    await this.ask(
      `INSERT INTO device_agent.history_runs
      SELECT $1, kind, key, device, since, until FROM jsonb_to_recordset($2::jsonb)
        AS row (kind text, key text, device text, since bigint, until bigint)
      ON CONFLICT (kind, key, since, node, device) DO UPDATE SET until = excluded.until`,
      [this.#nameOf(file), JSON.stringify(runs.map(({ of, since, until }) => ({ ...named(of), since, until })))],
    );
  }

  async #putAway(file: HistoryFile, away: readonly NewAway[]): Promise<void> {
    await this.ask(
      `INSERT INTO device_agent.history_away
      SELECT $1, device, at, seconds, machine FROM jsonb_to_recordset($2::jsonb)
        AS row (device text, at bigint, seconds integer, machine double precision[])
      ON CONFLICT (device, at, node) DO UPDATE SET seconds = excluded.seconds, machine = excluded.machine`,
      [this.#nameOf(file), JSON.stringify(away)],
    );
  }

  /** Also what was passed on by gateways that are gone. A clock that is ahead deletes nothing. */
  async #forget(at: number): Promise<void> {
    const [{ now } = { now: at }] = await this.ask<{ now: number }>(
      'SELECT least($1, extract(epoch FROM now()) / 60)::integer AS now',
      [at],
    );
    const oldest = now - this.days * MINUTES.days;
    const old = [
      ["level = 'days' AND at < $1", oldest],
      ["level = 'hours' AND at < $1", oldest],
      [`level = 'hours' AND at < $1 AND ${IS_SUMMED_UP}`, now - KEPT_HOURS],
    ] as const;
    const isGone = `node IN (SELECT node FROM device_agent.history_nodes WHERE written < ${oldest * 60})`;
    const isMine = `(split_part(node, ' ', 1) = $2 OR ${isGone})`;
    for (const [which, before] of old) await this.#delete('history', `${which} AND ${isMine}`, before);
    await this.#delete('history_runs', `(until < $1 OR until IS NULL AND ${isGone}) AND ${isMine}`, oldest * 60);
    await this.#delete('history_away', `at < $1 AND ${isMine}`, oldest);
    await this.#delete('history_nodes', `written < $1 AND ${isMine}`, oldest * 60);
  }

  /** In batches: a statement that takes too long is cancelled. @param which with the time as $1 and this gateway as $2 */
  async #delete(table: string, which: string, before: number): Promise<void> {
    for (;;) {
      const [{ rows } = { rows: 0 }] = await this.ask<{ rows: number }>(
        `WITH deleted AS (
          DELETE FROM device_agent.${table} WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM device_agent.${table} AS row WHERE ${which} LIMIT ${FORGET_AT_ONCE}
          )) RETURNING 1
        ) SELECT count(*)::integer AS rows FROM deleted`,
        [before, this.node],
      );
      if (rows < FORGET_AT_ONCE) return;
    }
  }
}

/** Whether a row by the hour is in one by the day as well. */
const IS_SUMMED_UP = `EXISTS (
  SELECT FROM device_agent.history AS day WHERE day.kind = row.kind AND day.key = row.key AND day.level = 'days'
    AND day.at = row.at - row.at % ${MINUTES.days} AND day.node = row.node AND day.device = row.device
)`;

function nameOf(node: string, begun: number): string {
  return `${node} ${begun}`;
}

/** Names here of gateways that are asked themselves: earlier versions wrote without when the file began. */
function namesOf(asked: ReadonlyMap<string, number>): string[] {
  return [...asked].flatMap(([node, begun]) => [node, nameOf(node, begun)]);
}

/** @param place of the key among the parameters */
function keyIs(kind: HistorySubject['kind'], key: string, place: string): string {
  if (!isNamedByHost(kind, key)) return `key = ${place}`;
  const keys = `SELECT DISTINCT key FROM device_agent.history_runs WHERE kind = 'endpoint' AND ${hostOf('key')} = ${place}`;
  return `key = ANY(ARRAY(${keys}))`;
}

function named({ kind, key, device }: HistorySubject): HistorySubject {
  return { kind, key, device };
}

function* parts<T>(all: readonly T[]): Generator<readonly T[]> {
  for (let at = 0; at < all.length; at += AT_ONCE) yield all.slice(at, at + AT_ONCE);
}
