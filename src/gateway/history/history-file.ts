import { existsSync, renameSync, rmSync } from 'node:fs';
import type Libsql from 'libsql';
import { SLOT_SECONDS } from '../../agent-protocol/messages.ts';
import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { runInTurns, type Stepwise } from '../../lib/stepwise.ts';
import { isDamage } from '../store/sql/database-problems.ts';
import { PreparedStatements, type SqlValue, sqlEngine } from '../store/sql/sql-engine.ts';
import { COLUMNS, Values } from './history-values.ts';

/** What has a history. Of an endpoint, the key is its URL, or the labels of a tunnel behind TLS edges. */
export interface HistorySubject {
  readonly kind: 'endpoint' | 'device' | 'gateway';
  readonly key: string;
  /** The device that has bound an endpoint; empty: no device has. */
  readonly device: string;
}

/** Counts of a minute, an hour or a day. Times are whole minutes since 1970. */
export interface HistoryRow {
  readonly series: number;
  readonly at: number;
  readonly values: Values;
}

/** Without a break online, in whole seconds since 1970; until null: still. */
export interface Run {
  readonly since: number;
  readonly until: number | null;
}

export interface RunRow extends Run {
  readonly series: number;
}

/** Counts of a minute of something that may have no series yet. */
export interface NewHistoryRow extends Omit<HistoryRow, 'series'> {
  readonly of: HistorySubject;
}

export interface NewRun extends Run {
  readonly of: HistorySubject;
}

/** What a device has said of ten minutes in which it ran without a session, or of a whole day once that is old. */
export interface Away {
  /** When they began, in whole minutes since 1970. */
  readonly at: number;
  readonly seconds: number;
  readonly machine: MachineReadings;
}

/** Degrees Celsius, available bytes of memory and of the disk, dBm of the wireless network; null: not known. */
export type MachineReadings = readonly [
  temperature: number | null,
  memory: number | null,
  disk: number | null,
  signal: number | null,
];

export interface NewAway extends Away {
  /** Its id. */
  readonly device: string;
}

/** What is complete of a time, and is passed on to where it is kept, too. */
export interface Complete<T> {
  readonly rows: readonly T[];
  /** Up to where that is, in minutes, or of runs in seconds. */
  readonly until: number;
}

export type Level = 'minutes' | 'hours' | 'days';

/** Up to where rows are summed up, when the file was begun and written, and up to where it was passed on. */
type State = 'hours' | 'days' | 'begun' | 'written' | 'passedHours' | 'passedDays' | 'passedRuns';

/** Minutes in a row of each level. */
export const MINUTES: Readonly<Record<Level, number>> = { minutes: 1, hours: 60, days: 1440 };
const DAY = MINUTES.days;
export const SLOT_MINUTES = SLOT_SECONDS / 60;
/** How long rows are kept, in minutes: by the minute for somewhat more than the two hours that pages show. */
const KEPT_MINUTES = 180;
const KEPT_HOURS = 30 * DAY;

const SCHEMA_VERSION = 1;
/** Series that are summed up in one step. */
const STEP = 20;

const SUMS = COLUMNS.map((column) => `SUM(${column})`).join(', ');
const NUMBERS = COLUMNS.map((column) => `${column} REAL NOT NULL`).join(', ');

const SCHEMA = `
  CREATE TABLE series (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    device TEXT NOT NULL,
    UNIQUE (kind, key, device)
  ) STRICT;
  CREATE INDEX series_by_device ON series (device) WHERE device <> '';
  ${(['minutes', 'hours', 'days'] as const)
    .map(
      (level) => `CREATE TABLE ${level} (
        series INTEGER NOT NULL, at INTEGER NOT NULL, ${NUMBERS}, refusals TEXT, PRIMARY KEY (series, at)
      ) STRICT, WITHOUT ROWID;`,
    )
    .join('\n')}
  CREATE TABLE runs (
    series INTEGER NOT NULL, since INTEGER NOT NULL, until INTEGER, PRIMARY KEY (series, since)
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE state (name TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
  PRAGMA user_version = ${SCHEMA_VERSION};
`;

/** Apart: an earlier version uses a file that has it. `told` is when it was written, in whole seconds since 1970. */
const AWAY_SCHEMA = `
  CREATE TABLE IF NOT EXISTS away (
    series INTEGER NOT NULL, at INTEGER NOT NULL, seconds INTEGER NOT NULL,
    temperature REAL, memory REAL, disk REAL, signal REAL, told INTEGER NOT NULL, PRIMARY KEY (series, at)
  ) STRICT, WITHOUT ROWID
`;
/** Finds once a minute what is new among all. */
const NEWS_SCHEMA = `
  CREATE INDEX IF NOT EXISTS runs_by_begin ON runs (since);
  CREATE INDEX IF NOT EXISTS runs_by_end ON runs (until);
  CREATE INDEX IF NOT EXISTS away_by_time ON away (told);
`;
/** Names of what is passed on, by what it is. */
const PASSED = { hours: 'passedHours', days: 'passedDays', runs: 'passedRuns' } as const;
/** The most worrying of what several rows say. */
const MACHINE = 'max(temperature), min(memory), min(disk), min(signal)';

/**
 * What has happened, in a database of its own: it is no part of the gateway's data, of which several gateways have copies, and
 * losing it stops nothing. Rows by the minute become rows by the hour, and these become rows by the day.
 */
export class HistoryFile {
  readonly #reads: PreparedStatements;
  readonly #changes: PreparedStatements;
  /** One transaction at a time: each takes several turns of the event loop. */
  #work: Promise<unknown> = Promise.resolve();
  #isClosed = false;
  /** Ids of series, by their subjects. */
  readonly #ids = new Map<string, number>();

  private constructor(
    private readonly engine: Libsql.Database,
    /** Days for which rows by the day are kept. */
    private readonly days: number,
  ) {
    this.#reads = new PreparedStatements(engine, 'values');
    this.#changes = new PreparedStatements(engine, 'objects');
  }

  /** Opens the file, or creates it. A damaged one, or one of a newer version, is set aside. @throws the engine's or the system's error */
  static open(file: string, days: number, log: Log): HistoryFile {
    try {
      return HistoryFile.#openFile(file, days);
    } catch (error) {
      if (!isDamage(error) && !(error instanceof NewerHistory)) throw error;
      const aside = `${file}.aside`;
      log.error({ file: aside, reason: messageOf(error) }, 'history cannot be read: file set aside, a new one begins');
      for (const suffix of ['-wal', '-shm']) rmSync(file + suffix, { force: true });
      if (existsSync(file)) renameSync(file, aside);
      return HistoryFile.#openFile(file, days);
    }
  }

  static #openFile(file: string, days: number): HistoryFile {
    const engine = new (sqlEngine())(file);
    try {
      engine.exec('PRAGMA journal_mode = WAL');
      // A power cut may lose the latest rows, but damages nothing. Each commit flushed would wear out SD cards.
      engine.exec('PRAGMA synchronous = NORMAL');
      const [row] = engine.prepare('PRAGMA user_version').all() as { user_version: number }[];
      const version = row?.user_version ?? 0;
      if (version > SCHEMA_VERSION) throw new NewerHistory(file);
      if (version === 0) engine.exec(`BEGIN; ${SCHEMA} COMMIT`);
      engine.exec(AWAY_SCHEMA);
      engine.exec(NEWS_SCHEMA);
      return new HistoryFile(engine, days);
    } catch (error) {
      engine.close();
      throw error;
    }
  }

  /** Closes what a gateway that was killed has left open: at the time of its last write. To be called once, at the start. */
  endRuns(): Promise<void> {
    return this.#transaction(this.#ending());
  }

  *#ending(): Stepwise<void> {
    yield;
    this.#run('UPDATE runs SET until = max(since, ?) WHERE until IS NULL', [this.#state('written')]);
  }

  /**
   * Adds counts of minutes, and replaces runs by series and beginning. Of what devices say twice, the longer time counts.
   * @param now in whole seconds since 1970 @returns resolves when it is written
   */
  write(
    rows: readonly NewHistoryRow[],
    runs: readonly NewRun[],
    now: number,
    away: readonly NewAway[] = [],
  ): Promise<void> {
    return this.#transaction(this.#writing(rows, runs, now, away));
  }

  *#writing(
    rows: readonly NewHistoryRow[],
    runs: readonly NewRun[],
    now: number,
    away: readonly NewAway[],
  ): Stepwise<void> {
    // What is summed up already is complete, whatever the clock does.
    const open = this.#state('hours');
    for (const { of, at, values } of rows) {
      const place = [this.#seriesOf(of), Math.max(at, open)] as const;
      this.#put('minutes', ...place, this.#known('minutes', ...place).add(values));
      yield;
    }
    for (const { of, since, until } of runs) {
      this.#run('INSERT OR REPLACE INTO runs VALUES (?, ?, ?)', [this.#seriesOf(of), since, until]);
      yield;
    }
    for (const { device, at, seconds, machine } of away) {
      const series = this.#seriesOf({ kind: 'device', key: device, device });
      this.#run(
        `INSERT INTO away VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
          seconds = excluded.seconds, temperature = excluded.temperature, memory = excluded.memory, disk = excluded.disk,
          signal = excluded.signal, told = excluded.told WHERE excluded.seconds > seconds`,
        [series, at, seconds, ...machine, now],
      );
      yield;
    }
    this.#setState('written', now);
    if (this.#state('begun') === 0) this.#setState('begun', Math.floor(now / 60));
  }

  /**
   * Sums up what is complete, and forgets what is old.
   * @param now in whole minutes since 1970
   */
  async sumUp(now: number): Promise<void> {
    const hour = now - (now % MINUTES.hours);
    const day = now - (now % DAY);
    if (this.#state('hours') >= hour) return;
    await this.#transaction(this.#summingUp('minutes', 'hours', hour, hour - KEPT_MINUTES));
    if (this.#state('days') < day) {
      await this.#transaction(this.#summingUp('hours', 'days', day, day - KEPT_HOURS));
      await this.#transaction(this.#thinningOut(day - KEPT_HOURS));
      await this.#transaction(this.#forgetting(day - this.days * DAY));
    }
    // Now, rather than when the engine has a thousand pages: it blocks the event loop.
    this.#all('PRAGMA wal_checkpoint(TRUNCATE)', []);
  }

  *#summingUp(from: Level, into: 'hours' | 'days', until: number, kept: number): Stepwise<void> {
    const size = MINUTES[into];
    const since = this.#state(into);
    for (const [first, last] of this.#parts()) {
      const range = [first, last, since, until];
      const bucket = `at - at % ${size}`;
      const where = 'WHERE series BETWEEN ? AND ? AND at >= ? AND at < ?';
      this.#run(
        `INSERT OR REPLACE INTO ${into} SELECT series, ${bucket}, ${SUMS}, NULL FROM ${from} ${where} GROUP BY series, ${bucket}`,
        range,
      );
      const tallied = `SELECT series, ${bucket}, refusals FROM ${from} ${where} AND refusals IS NOT NULL`;
      for (const [series, at, text] of this.#all(tallied, range) as [number, number, string][]) {
        this.#put(into, series, at, this.#known(into, series, at).add(Values.of([], JSON.parse(text))));
      }
      this.#run(`DELETE FROM ${from} WHERE series BETWEEN ? AND ? AND at < ?`, [first, last, kept]);
      yield;
    }
    this.#setState(into, until);
  }

  /** Replaces the runs that begin or end on old days by the seconds of these days. @param until in minutes */
  *#thinningOut(until: number): Stepwise<void> {
    const end = until * 60;
    const ended = 'until IS NOT NULL AND until <= ?';
    for (const [first, last] of this.#parts()) {
      const sql = `SELECT series, since, until FROM runs WHERE series BETWEEN ? AND ? AND ${ended}`;
      for (const [series, since, to] of this.#all(sql, [first, last, end]) as [number, number, number][]) {
        for (const { at, seconds } of secondsByDay(since, to)) {
          const values = this.#known('days', series, at);
          values.numbers[COLUMNS.indexOf('online')] = values.online + seconds;
          this.#put('days', series, at, values);
        }
      }
      this.#run(`DELETE FROM runs WHERE series BETWEEN ? AND ? AND ${ended}`, [first, last, end]);
      const old = 'FROM away WHERE series BETWEEN ? AND ? AND at < ?';
      const day = `at - at % ${DAY}`;
      this.#run(
        `INSERT OR REPLACE INTO away SELECT series, ${day}, sum(seconds), ${MACHINE}, max(told) ${old} GROUP BY series, ${day}`,
        [first, last, until],
      );
      this.#run(`DELETE ${old} AND at % ${DAY} > 0`, [first, last, until]);
      yield;
    }
  }

  *#forgetting(before: number): Stepwise<void> {
    for (const [first, last] of this.#parts()) {
      this.#run('DELETE FROM days WHERE series BETWEEN ? AND ? AND at < ?', [first, last, before]);
      this.#run('DELETE FROM away WHERE series BETWEEN ? AND ? AND at < ?', [first, last, before]);
      const isEmpty = ['minutes', 'hours', 'days', 'runs', 'away']
        .map((table) => `NOT EXISTS (SELECT 1 FROM ${table} WHERE ${table}.series = id)`)
        .join(' AND ');
      this.#run(`DELETE FROM series WHERE id BETWEEN ? AND ? AND ${isEmpty}`, [first, last]);
      yield;
    }
    this.#ids.clear();
  }

  /** Ranges of the ids of series. */
  *#parts(): Generator<[number, number]> {
    const [[most]] = this.#all('SELECT coalesce(max(id), 0) FROM series', []) as [[number]];
    for (let first = 1; first <= most; first += STEP) yield [first, first + STEP - 1];
  }

  /** Whether something has a history already. */
  has({ kind, key, device }: HistorySubject): boolean {
    const sql = 'SELECT 1 FROM series WHERE kind = ? AND key = ? AND device = ?';
    return this.#all(sql, [kind, key, device]).length > 0;
  }

  /** Ids of the series of all gateways that write this file; more than one if its name has changed. */
  gateways(): number[] {
    return this.#all("SELECT id FROM series WHERE kind = 'gateway'", []).map(([id]) => Number(id));
  }

  /** Ids of the series of an endpoint, by its URL or by the hostname in it, with all devices that have bound it, or of a device. */
  series(kind: HistorySubject['kind'], key: string): number[] {
    if (isNamedByHost(kind, key)) {
      const sql = "SELECT id FROM series WHERE kind = ? AND instr(key || ':', '://' || ? || ':') > 0";
      return this.#all(sql, [kind, key]).map(([id]) => Number(id));
    }
    return this.#all('SELECT id FROM series WHERE kind = ? AND key = ?', [kind, key]).map(([id]) => Number(id));
  }

  /** Ids of the series of a device's endpoints. */
  endpointsOf(device: string): number[] {
    return this.#all("SELECT id FROM series WHERE device = ? AND kind = 'endpoint'", [device]).map(([id]) =>
      Number(id),
    );
  }

  /**
   * Rows that together have all counts from one minute up to another one, as coarse as possible.
   * @param level the coarsest that may be: `days` are summed up once they are over
   */
  rows(series: readonly number[], level: Level, from: number, to: number): HistoryRow[] {
    const [days, hours] = [this.#state('days'), this.#state('hours')];
    const parts: [Level, number, number][] = [
      ['days', from, level === 'days' ? days : 0],
      ['hours', level === 'days' ? Math.max(from, days) : from, level === 'minutes' ? 0 : hours],
      ['minutes', level === 'minutes' ? from : Math.max(from, hours), to],
    ];
    return series.flatMap((id) =>
      parts.flatMap(([table, since, until]) =>
        this.#all(`SELECT * FROM ${table} WHERE series = ? AND at >= ? AND at < ?`, [
          id,
          since,
          Math.min(until, to),
        ]).map(readRow),
      ),
    );
  }

  /** Runs that overlap some time. @param from in whole seconds since 1970, like `to` */
  runs(series: readonly number[], from: number, to: number): RunRow[] {
    const sql = 'SELECT series, since, until FROM runs WHERE series = ? AND since < ? AND (until IS NULL OR until > ?)';
    return series
      .flatMap((id) => this.#all(sql, [id, to, from]) as [number, number, number | null][])
      .map(([id, since, until]) => ({ series: id, since, until }));
  }

  /** Numbers of requests by the hour, in the last 30 days: what lists show of many. @param from in whole minutes, like `to` */
  requestsByHour(series: readonly number[], from: number, to: number): Pick<HistoryRow, 'at' | 'values'>[] {
    const of = 'WHERE series IN (SELECT value FROM json_each(?)) AND at >= ? AND at < ?';
    const sql = `SELECT at - at % 60 AS hour, SUM(requests)
      FROM (SELECT at, requests FROM hours ${of} UNION ALL SELECT at, requests FROM minutes ${of}) GROUP BY hour`;
    const [ids, summedUp] = [JSON.stringify(series), this.#state('hours')];
    const rows = this.#all(sql, [ids, from, Math.min(to, summedUp), ids, Math.max(from, summedUp), to]);
    return rows.map(([at, requests]) => {
      const values = new Values();
      values.requests = Number(requests);
      return { at: Number(at), values };
    });
  }

  /** When one of some series begins, in whole seconds since 1970; null: there is nothing yet. */
  firstSeen(series: readonly number[]): number | null {
    const run = 'SELECT min(since) FROM runs WHERE series = ?';
    const day = 'SELECT min(at) * 60 FROM days WHERE series = ?';
    const all = series.flatMap((id) => {
      const [[since, begin]] = this.#all(`SELECT (${run}), (${day})`, [id, id]) as [[number | null, number | null]];
      // A row of a day says nothing of its hours, unlike a run that begins on it.
      const isOfDay = since !== null && begin !== null && since >= begin && since < begin + DAY * 60;
      return [since, isOfDay ? null : begin].filter((each) => each !== null);
    });
    return all.length === 0 ? null : Math.min(...all);
  }

  /** Seconds online of days whose runs are no longer kept. @param from in whole minutes since 1970, like `to` */
  onlineByDay(series: readonly number[], from: number, to: number): { at: number; seconds: number }[] {
    const sql = 'SELECT at, online FROM days WHERE series = ? AND at >= ? AND at < ? AND online > 0';
    const rows = series.flatMap((id) => this.#all(sql, [id, from, to]) as [number, number][]);
    return rows.map(([at, seconds]) => ({ at, seconds }));
  }

  /** What devices have said of their times away. @param from in whole minutes since 1970, like `to` */
  away(series: readonly number[], from: number, to: number): Away[] {
    // Slots begin before what they are asked for.
    const sql =
      'SELECT at, seconds, temperature, memory, disk, signal FROM away WHERE series = ? AND at > ? AND at < ?';
    return series.flatMap((id) => this.#all(sql, [id, from - SLOT_MINUTES, to]).map(readAway));
  }

  /** The devices that have bound an endpoint, by its URL or by the hostname in it. */
  devicesOf(key: string): string[] {
    const sql = "SELECT DISTINCT device FROM series WHERE id IN (SELECT value FROM json_each(?)) AND device <> ''";
    return this.#all(sql, [JSON.stringify(this.series('endpoint', key))]).map(([device]) => String(device));
  }

  /** When something was written for the last time, in whole seconds since 1970. */
  get written(): number {
    return this.#state('written');
  }

  /** When the file was begun, in whole minutes since 1970; 0: nothing was written yet. */
  get begun(): number {
    return this.#state('begun');
  }

  /** The first hour or day that is complete and was not {@link passedOn} yet; null: there is none. */
  async completeRows(level: 'hours' | 'days'): Promise<Complete<NewHistoryRow> | null> {
    const size = MINUTES[level];
    const kept = this.#state(level) - (level === 'hours' ? KEPT_HOURS : this.days * DAY);
    const begun = this.begun - (this.begun % size);
    const since = Math.max(this.#state(PASSED[level]), kept, begun);
    const until = since + size;
    if (until > this.#state(level)) return null;
    return { rows: await runInTurns(this.#rowsAt(level, since)), until };
  }

  *#rowsAt(level: 'hours' | 'days', at: number): Stepwise<NewHistoryRow[]> {
    const rows: NewHistoryRow[] = [];
    // Series by series: rows of one time are spread over the whole table.
    const sql = `SELECT of.kind, of.key, of.device, rows.* FROM series AS of CROSS JOIN ${level} AS rows
      ON rows.series = of.id AND rows.at = ? WHERE of.id BETWEEN ? AND ?`;
    for (const part of this.#parts()) {
      for (const [kind, key, device, ...row] of this.#all(sql, [at, ...part])) {
        const of = { kind, key, device } as HistorySubject;
        rows.push({ of, at, values: readRow(row).values });
      }
      yield;
    }
    return rows;
  }

  /** Runs that are new or have ended since they were {@link passedOn}, and what devices have said since then. */
  news(): Complete<NewRun> & { readonly away: readonly NewAway[] } {
    const changed = this.#state(PASSED.runs);
    const runs = this.#all(
      'SELECT kind, key, device, since, until FROM runs JOIN series ON id = series WHERE since >= ? OR until >= ?',
      [changed, changed],
    );
    const away = this.#all(
      'SELECT at, seconds, temperature, memory, disk, signal, device FROM away JOIN series ON id = series WHERE told >= ?',
      [changed],
    );
    return {
      rows: runs.map(([kind, key, device, since, until]) => ({
        of: { kind, key, device } as HistorySubject,
        since: Number(since),
        until: until === null ? null : Number(until),
      })),
      away: away.map((row) => ({ device: String(row[6]), ...readAway(row) })),
      until: this.written,
    };
  }

  /** Remembers up to where something is kept elsewhere, too. */
  passedOn(what: keyof typeof PASSED, until: number): Promise<void> {
    return this.#transaction(this.#passingOn(what, until));
  }

  *#passingOn(what: keyof typeof PASSED, until: number): Stepwise<void> {
    yield;
    this.#setState(PASSED[what], until);
  }

  /** Resolves when all is written and closed. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    await this.#work.catch(() => {}); // its caller has the error
    this.#isClosed = true;
    this.#reads.clear();
    this.#changes.clear();
    this.engine.close();
  }

  #transaction(steps: Stepwise<void>): Promise<void> {
    const done = this.#work.then(async () => {
      if (this.#isClosed) return;
      this.engine.exec('BEGIN IMMEDIATE');
      try {
        await runInTurns(steps);
        this.engine.exec('COMMIT');
      } catch (error) {
        if (this.engine.inTransaction) this.engine.exec('ROLLBACK');
        this.#ids.clear();
        throw error;
      }
    });
    this.#work = done.catch(() => {}); // its caller has the error
    return done;
  }

  #seriesOf({ kind, key, device }: HistorySubject): number {
    const name = `${kind} ${device} ${key}`;
    const known = this.#ids.get(name);
    if (known !== undefined) return known;
    const subject = [kind, key, device];
    this.#run('INSERT OR IGNORE INTO series (kind, key, device) VALUES (?, ?, ?)', subject);
    const [row] = this.#all('SELECT id FROM series WHERE kind = ? AND key = ? AND device = ?', subject);
    const id = Number(row?.[0]);
    this.#ids.set(name, id);
    return id;
  }

  #known(level: Level, series: number, at: number): Values {
    const row = this.#all(`SELECT * FROM ${level} WHERE series = ? AND at = ?`, [series, at])[0];
    return row === undefined ? new Values() : readRow(row).values;
  }

  #put(level: Level, series: number, at: number, { numbers, tallies }: Values): void {
    const places = ', ?'.repeat(COLUMNS.length);
    const text = tallies && JSON.stringify(tallies);
    this.#run(`INSERT OR REPLACE INTO ${level} VALUES (?, ?${places}, ?)`, [series, at, ...numbers, text]);
  }

  #state(name: State): number {
    return Number(this.#all('SELECT value FROM state WHERE name = ?', [name])[0]?.[0] ?? 0);
  }

  #setState(name: State, value: number): void {
    this.#run('INSERT OR REPLACE INTO state VALUES (?, ?)', [name, value]);
  }

  #all(sql: string, parameters: readonly SqlValue[]): unknown[][] {
    return this.#reads.prepare(sql, parameters).all([...parameters]) as unknown[][];
  }

  #run(sql: string, parameters: readonly SqlValue[]): void {
    this.#changes.prepare(sql, parameters).run([...parameters]);
  }
}

/** Whether the key of an endpoint is the hostname of its URL, rather than the URL. */
export function isNamedByHost(kind: HistorySubject['kind'], key: string): boolean {
  return kind === 'endpoint' && !key.includes('://');
}

class NewerHistory extends Error {
  constructor(file: string) {
    super(`${file} was written by a newer version of this program`);
    this.name = 'NewerHistory';
  }
}

function readRow([series, at, ...rest]: readonly unknown[]): HistoryRow {
  const tallies = rest[COLUMNS.length];
  const values = Values.of(
    rest.slice(0, COLUMNS.length) as number[],
    tallies === null || tallies === undefined ? null : JSON.parse(String(tallies)),
  );
  return { series: Number(series), at: Number(at), values };
}

function readAway([at, seconds, ...machine]: readonly unknown[]): Away {
  return { at: Number(at), seconds: Number(seconds), machine: machine.slice(0, 4) as unknown as MachineReadings };
}

/** The seconds of a run on each of its days. @returns days as minutes since 1970 */
function* secondsByDay(since: number, until: number): Generator<{ at: number; seconds: number }> {
  const day = DAY * 60;
  for (let begin = since; begin < until; ) {
    const start = begin - (begin % day);
    const end = Math.min(until, start + day);
    yield { at: start / 60, seconds: end - begin };
    begin = end;
  }
}
