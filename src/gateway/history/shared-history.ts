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

/**
 * Outside the order of commits, and of no gateway's copy: no commit waits for it, and a gateway that is late has it in its own file. A row
 * by the hour or the day has all numbers of one gateway.
 */
const SCHEMA = `
  CREATE TABLE IF NOT EXISTS device_agent.history (
    node text NOT NULL, level text NOT NULL, kind text NOT NULL, key text NOT NULL, device text NOT NULL,
    at bigint NOT NULL, numbers double precision[] NOT NULL, refusals jsonb,
    PRIMARY KEY (kind, key, level, at, node, device)
  );
  CREATE INDEX IF NOT EXISTS history_of_devices ON device_agent.history (device, level, at) WHERE device <> '';
  CREATE TABLE IF NOT EXISTS device_agent.history_runs (
    node text NOT NULL, kind text NOT NULL, key text NOT NULL, device text NOT NULL,
    since bigint NOT NULL, until bigint, PRIMARY KEY (kind, key, since, node, device)
  );
  CREATE TABLE IF NOT EXISTS device_agent.history_away (
    node text NOT NULL, device text NOT NULL, at bigint NOT NULL, seconds integer NOT NULL,
    machine double precision[] NOT NULL, PRIMARY KEY (device, at, node)
  );
  CREATE TABLE IF NOT EXISTS device_agent.history_nodes (node text PRIMARY KEY, written bigint NOT NULL);
`;

/** Rows in a statement: others wait for it on the same connection. */
const AT_ONCE = 1_000;
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
    const { hours, days, runs, away, until } = file.notPassedOn();
    if (hours.length + days.length + runs.length + away.length === 0) return;
    await this.#prepare();
    for (const part of parts(hours)) await this.#put('hours', part);
    for (const part of parts(days)) await this.#put('days', part);
    for (const part of parts(runs)) await this.#putRuns(part);
    for (const part of parts(away)) await this.#putAway(part);
    await this.ask(
      'INSERT INTO device_agent.history_nodes VALUES ($1, $2) ON CONFLICT (node) DO UPDATE SET written = excluded.written',
      [this.node, until.runs],
    );
    if (days.length > 0) await this.#forget(until.days);
    await file.passedOn(until);
  }

  /**
   * What gateways have passed on that are not asked themselves. @param asked those that are, with when their files begin, in
   * minutes: what they had before is in nobody's file @throws {DatabaseAway}
   */
  async part(
    of: SubjectName,
    { from, to, step }: HistoryRange,
    asked: ReadonlyMap<string, number>,
  ): Promise<HistoryPart> {
    await this.#prepare();
    const begun = JSON.stringify(Object.fromEntries(asked));
    const level = levelOf(step);
    const runs = (kind: HistorySubject['kind'], key: string) => this.#runs(kind, key, { from, to, step }, begun);
    const own = await runs(of.kind, of.key);
    return {
      // Minutes are in the files alone.
      rows: level === 'minutes' ? [] : await this.#rows(of, level, { from, to, step }, begun),
      runs: own,
      known: of.kind === 'gateway' ? own : await runs('gateway', ''),
      away: of.kind === 'gateway' ? [] : await this.#away(of, { from, to, step }, begun),
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
    if (nodes.every(({ node }) => (asked.get(node) ?? Infinity) <= from)) return [];
    const begun = JSON.stringify(Object.fromEntries(asked));
    const keys = of.map(({ key }) => key);
    const known = await this.#runs('gateway', '', { from, to, step }, begun);
    const rows = await this.ask<{ key: string; device: string; at: string; requests: number }>(
      `SELECT key, device, at, numbers[1] AS requests FROM device_agent.history
      WHERE level = 'hours' AND kind = 'endpoint' AND (key = ANY($4) OR device = ANY($4))
        AND at >= $1 AND at < $2 AND at < coalesce(($3::jsonb->>node)::bigint, $2)`,
      [from, to, begun, keys],
    );
    const runs = await this.ask<{ kind: string; key: string; since: string; until: string }>(
      `SELECT kind, key, since, least(coalesce(until, written), ($3::jsonb->>node)::bigint * 60) AS until
      FROM device_agent.history_runs JOIN device_agent.history_nodes USING (node)
      WHERE kind <> 'gateway' AND key = ANY($4) AND (until IS NULL OR until > $1) AND since < $2`,
      [from * 60, to * 60, begun, keys],
    );
    const seen = await this.ask<{ kind: string; key: string; first: string }>(
      `SELECT kind, key, min(since) AS first FROM device_agent.history_runs
      WHERE kind <> 'gateway' AND key = ANY($1) GROUP BY kind, key`,
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

  async #rows({ kind, key }: SubjectName, level: 'hours' | 'days', { from, to }: HistoryRange, begun: string) {
    const which = {
      gateway: "kind = 'gateway'",
      device: "device = $5 AND kind IN ('endpoint', 'device')",
      endpoint: `kind = 'endpoint' AND ${keyIs(kind, key)}`,
    }[kind];
    const rows = await this.ask<{ at: string; numbers: number[]; refusals: Values['tallies'] }>(
      `SELECT at, numbers, refusals FROM device_agent.history
      WHERE ${which} AND level = $1 AND at >= $2 AND at < $3 AND at < coalesce(($4::jsonb->>node)::bigint, $3)`,
      [level, from, to, begun, ...(kind === 'gateway' ? [] : [key])],
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

  async #runs(kind: HistorySubject['kind'], key: string, { from, to }: HistoryRange, begun: string): Promise<Run[]> {
    const rows = await this.ask<{ since: string; until: string }>(
      `WITH ended AS (
        SELECT since, least(coalesce(until, written), ($3::jsonb->>node)::bigint * 60) AS until
        FROM device_agent.history_runs JOIN device_agent.history_nodes USING (node)
        WHERE kind = $4 AND since < $2 ${kind === 'gateway' ? '' : `AND ${keyIs(kind, key)}`}
      )
      SELECT since, until FROM ended WHERE until > $1 AND until > since`,
      [from * 60, to * 60, begun, kind, ...(kind === 'gateway' ? [] : [key])],
    );
    return rows.map(({ since, until }) => ({ since: Number(since), until: Number(until) }));
  }

  async #away({ kind, key }: SubjectName, { from, to }: HistoryRange, begun: string): Promise<Away[]> {
    const bound = `IN (SELECT device FROM device_agent.history_runs WHERE kind = 'endpoint' AND ${keyIs('endpoint', key, '$4')})`;
    const rows = await this.ask<{ at: string; seconds: number; machine: Away['machine'] }>(
      `SELECT at, seconds, machine FROM device_agent.history_away
      WHERE device ${kind === 'device' ? '= $4' : bound} AND at > $1 AND at < least($2, coalesce(($3::jsonb->>node)::bigint, $2))`,
      [from - SLOT_MINUTES, to, begun, key],
    );
    return rows.map(({ at, ...row }) => ({ at: Number(at), ...row }));
  }

  async #prepare(): Promise<void> {
    if (this.#isReady) return;
    // Two that create a table at the same time fail, also with IF NOT EXISTS.
    await this.ask(`SELECT pg_advisory_xact_lock(${CREATION_LOCK}); ${SCHEMA}`);
    this.#isReady = true;
  }

  async #put(level: 'hours' | 'days', rows: readonly NewHistoryRow[]): Promise<void> {
    // The seconds online are in the runs, which are kept as long as the days.
    const sent = rows.map(({ of, at, values }) => ({
      ...{ ...named(of), at, numbers: [...values.numbers.subarray(0, -1), 0], refusals: values.tallies },
    }));
    await this.ask(
      `INSERT INTO device_agent.history
      SELECT $1, $2, kind, key, device, at, numbers, refusals FROM jsonb_to_recordset($3::jsonb)
        AS row (kind text, key text, device text, at bigint, numbers double precision[], refusals jsonb)
      ON CONFLICT (kind, key, level, at, node, device) DO UPDATE SET numbers = excluded.numbers, refusals = excluded.refusals`,
      [this.node, level, JSON.stringify(sent)],
    );
  }

  async #putRuns(runs: readonly NewRun[]): Promise<void> {
    await this.ask(
      `INSERT INTO device_agent.history_runs
      SELECT $1, kind, key, device, since, until FROM jsonb_to_recordset($2::jsonb)
        AS row (kind text, key text, device text, since bigint, until bigint)
      ON CONFLICT (kind, key, since, node, device) DO UPDATE SET until = excluded.until`,
      [this.node, JSON.stringify(runs.map(({ of, since, until }) => ({ ...named(of), since, until })))],
    );
  }

  async #putAway(away: readonly NewAway[]): Promise<void> {
    await this.ask(
      `INSERT INTO device_agent.history_away
      SELECT $1, device, at, seconds, machine FROM jsonb_to_recordset($2::jsonb)
        AS row (device text, at bigint, seconds integer, machine double precision[])
      ON CONFLICT (device, at, node) DO UPDATE SET seconds = excluded.seconds, machine = excluded.machine`,
      [this.node, JSON.stringify(away)],
    );
  }

  async #forget(now: number): Promise<void> {
    const oldest = now - this.days * MINUTES.days;
    await this.ask("DELETE FROM device_agent.history WHERE node = $1 AND (at < $2 OR (level = 'hours' AND at < $3))", [
      this.node,
      oldest,
      now - KEPT_HOURS,
    ]);
    await this.ask('DELETE FROM device_agent.history_runs WHERE until < $1', [oldest * 60]);
    await this.ask('DELETE FROM device_agent.history_away WHERE at < $1', [oldest]);
  }
}

/** @param place of the key among the parameters */
function keyIs(kind: HistorySubject['kind'], key: string, place = '$5'): string {
  return isNamedByHost(kind, key) ? `position('://' || ${place} || ':' IN key || ':') > 0` : `key = ${place}`;
}

function named({ kind, key, device }: HistorySubject): HistorySubject {
  return { kind, key, device };
}

function* parts<T>(all: readonly T[]): Generator<readonly T[]> {
  for (let at = 0; at < all.length; at += AT_ONCE) yield all.slice(at, at + AT_ONCE);
}
