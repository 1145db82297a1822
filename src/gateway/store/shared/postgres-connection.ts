import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { connect, Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type { ConnectionOptions } from 'node:tls';
import type { Client } from 'pg';
import { messageOf, OperatorError } from '../../../lib/errors.ts';
import { type PostgresPlace, parsePostgresUrl, type SslMode } from '../../../lib/network/postgres-url.ts';
import { type BackoffPolicy, backoffDelay } from '../../../lib/time/backoff.ts';
import { withDeadline } from '../../../lib/time/deadline.ts';
import { DatabaseAway } from '../sql/database-problems.ts';

const CONNECT_MS = 3_000;
/** Longest answer to one statement: the server cancels it then. */
export const QUERY_MS = 5_000;
/** How much longer the network may be silent before the answer ends; the connection is given up then. */
const NETWORK_MS = 1_000;
/** How often, during that time, it is checked whether anything has come. */
const CHECKS = 10;
/** Longest wait of a statement for what others have locked, such as a table for maintenance. */
const LOCK_MS = 3_000;
/** After so long without a statement, the server ends a transaction: the gateway may have lost power. */
const IDLE_MS = 5_000;
/** The same for one in which others wait for the gateway. */
const TURN_IDLE_MS = 1_000;
/** A server that does not accept a connection for so long is looked for on another way, too. */
const PATIENCE_MS = 1_000;
/** After so long without any byte of an answer, a further connection shows whether the server is there, if there is another way. */
const DOUBT_MS = 1_500;
/** How long that may take. */
const PROOF_MS = 2_000;
/** How often the direct way is tried while there is another one. */
const RETURN_MS = 2_000;
/** When other ways are looked for again after none was found: they may all be asked by all gateways. */
const AGAIN: BackoffPolicy = { baseMs: 1_000, maxMs: 5_000 };

const COMMIT = 'COMMIT';
/** It follows what is wrong with a certificate. */
const ADVICE_OF_NODE = /; if the root CA is installed locally.*$/s;

/** @param answerMs milliseconds that the server may take, and that may pass without any byte of its answer */
export type Ask = <Row>(text: string, values?: readonly unknown[], answerMs?: number) => Promise<Row[]>;

export interface Statement {
  readonly text: string;
  readonly values: readonly unknown[];
}

/** Another way to the server than the direct one. */
export interface Detour {
  /** Leads to the server already. */
  readonly stream: Socket;
  /** What it leads through, `host:port`. */
  readonly through: string;
}

export interface Detours {
  /** @throws when there is none */
  open: () => Promise<Detour>;
  /** For so many milliseconds, the server has not answered on the direct way. */
  afterMs: number;
}

/** Where a connection begins; `through`: null on the direct way. */
interface Link {
  readonly socket: Socket;
  readonly through: string | null;
}

/**
 * One connection to PostgreSQL, that is made again when it breaks. A server that can only be read counts as one that does not
 * answer: a standby may be behind.
 */
export class PostgresConnection {
  #client: Client | null = null;
  #connecting: Promise<Client> | null = null;
  #turns: Promise<unknown> = Promise.resolve();
  #closed = false;
  readonly #pems = new PemFiles();
  readonly #links = new WeakMap<Client, Link>();
  #detours: Detours | null = null;
  /** When the server has answered last on the direct way, and when another one may be looked for again. */
  #answeredAt = Number.NEGATIVE_INFINITY;
  #detourAt = Number.NEGATIVE_INFINITY;
  /** How often in turn no other way was found. */
  #detourFailures = 0;
  /** Why the direct way cannot be used. */
  #directReason = '';
  #returning: NodeJS.Timeout | undefined;

  /** @param url `postgres://user:password@host:port/database`, with libpq's parameters such as `sslmode` */
  constructor(private readonly url: string) {}

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#returning);
    await this.#client?.end().catch(() => {}); // broken already
  }

  /** From now on, the server is looked for on other ways when it does not answer on the direct one. */
  detourBy(detours: Detours): void {
    this.#detours = detours;
  }

  /** What the way to the server leads through, and why it is not direct; null: it is, or there is none. */
  get detour(): { through: string; reason: string } | null {
    const through = this.#client && this.#links.get(this.#client)?.through;
    return through ? { through, reason: this.#directReason } : null;
  }

  /** Opens a further connection to the server that this one uses. @throws unless that is on the direct way */
  async dial(): Promise<Socket> {
    if (this.#client === null || this.detour) throw new DatabaseAway('it is not reached on the direct way', null, true);
    const { host, port } = this.#client;
    const to = host.startsWith('/') ? { path: `${host}/.s.PGSQL.${port}` } : { host, port };
    const socket = connect({ ...to, noDelay: true, keepAlive: true });
    socket.on('error', () => {}); // it is closed then
    try {
      await withDeadline(once(socket, 'connect'), 'connecting to the shared database', CONNECT_MS);
      return socket;
    } catch (error) {
      socket.destroy();
      throw error;
    }
  }

  /**
   * Asks in a transaction of its own, that takes one round trip.
   * @param answerMs milliseconds until the server cancels the statement @param silenceMs until the connection is given up when
   * nothing comes: a long answer may take a slow link longer
   * @throws {DatabaseAway} without an answer in time, or when the server can only be read
   * @throws {OperatorError} when it refuses what was sent
   */
  async ask<Row>(
    text: string,
    values: readonly unknown[] = [],
    answerMs = QUERY_MS,
    silenceMs = answerMs,
  ): Promise<Row[]> {
    return this.#inTurn(answerMs, async (client, leftMs) => {
      const leftSilenceMs = Math.min(silenceMs, leftMs);
      const begun = this.#begin(client, leftMs, leftSilenceMs);
      const answer = this.#send<Row>(client, text, values, leftSilenceMs);
      const ended = this.#send(client, COMMIT, [], leftSilenceMs);
      const [first, second, third] = await Promise.allSettled([begun, answer, ended]);
      if (first.status === 'rejected') throw isUndone(second) ? first.reason : asUnknown(first.reason);
      if (second.status === 'rejected') throw second.reason;
      if (third.status === 'rejected') throw third.reason;
      return second.value;
    });
  }

  /** Asks several times in one transaction, which is undone when `work` throws. @throws as {@link ask} */
  async transaction<T>(work: (ask: Ask) => Promise<T>): Promise<T> {
    return this.#inTurn(QUERY_MS, async (client) => {
      try {
        await this.#begin(client, QUERY_MS);
        const done = await work((text, values = [], answerMs = QUERY_MS) => this.#send(client, text, values, answerMs));
        await this.#send(client, COMMIT, [], QUERY_MS);
        return done;
      } catch (error) {
        this.#drop(client);
        throw error;
      }
    });
  }

  /**
   * Asks twice in one transaction, that takes two round trips: others wait for its locks during the second one.
   * @param then what is asked next, by the answer to the first statement; null: nothing, and all is undone @throws as {@link ask}
   */
  async askTwice<First, Second>(
    first: Statement,
    then: (rows: First[]) => Promise<Statement | null>,
  ): Promise<Second[] | null> {
    return this.#inTurn(QUERY_MS, async (client, leftMs) => {
      const begun = this.#begin(client, leftMs, leftMs, TURN_IDLE_MS);
      const answer = this.#send<First>(client, first.text, first.values, leftMs);
      let next: Statement | null = null;
      try {
        const [begin, asked] = await Promise.allSettled([begun, answer]);
        if (begin.status === 'rejected') throw begin.reason;
        if (asked.status === 'rejected') throw asked.reason;
        next = await then(asked.value);
        if (next === null) await this.#send(client, 'ROLLBACK', [], leftMs);
      } catch (error) {
        this.#drop(client);
        throw error instanceof DatabaseAway ? new DatabaseAway(error.reason, error.cause, true) : error;
      }
      if (next === null) return null;
      const last = this.#send<Second>(client, next.text, next.values, leftMs);
      const ended = this.#send(client, COMMIT, [], leftMs);
      const [second, third] = await Promise.allSettled([last, ended]);
      if (second.status === 'rejected') throw second.reason;
      if (third.status === 'rejected') throw third.reason;
      return second.value;
    });
  }

  /** Asks while nothing else is asked on the connection. The time in line counts. */
  async #inTurn<T>(answerMs: number, work: (client: Client, leftMs: number) => Promise<T>): Promise<T> {
    const client = await this.#connect();
    const from = performance.now();
    const turn = this.#turns.then(() => {
      const leftMs = answerMs - (performance.now() - from);
      if (leftMs < 1) throw new DatabaseAway('no answer in time', null, true);
      // It may have got a better one in the meantime.
      return work(this.#client ?? client, leftMs);
    });
    this.#turns = turn.catch(() => {});
    return turn;
  }

  /**
   * Limits what the server does for this transaction alone: a pooler gives the session to others afterwards.
   * @throws {DatabaseAway} when the server can only be read
   */
  async #begin(client: Client, answerMs: number, silenceMs = answerMs, idleMs = IDLE_MS): Promise<void> {
    const limits = {
      statement_timeout: Math.ceil(answerMs),
      lock_timeout: LOCK_MS,
      idle_in_transaction_session_timeout: idleMs,
      // So that it notices the loss of this machine while it has an answer to send.
      ...{ tcp_keepalives_idle: 5, tcp_keepalives_interval: 2, tcp_keepalives_count: 3 },
    };
    const sets = Object.entries(limits).map(([name, value]) => `SET LOCAL ${name} = ${value}`);
    const [server] = await this.#send<{ recovers: boolean; mode: string }>(
      client,
      `BEGIN ISOLATION LEVEL READ COMMITTED; ${sets.join('; ')};
      SELECT pg_is_in_recovery() AS recovers, current_setting('transaction_read_only') AS mode`,
      [],
      silenceMs,
    );
    if (server?.recovers === false && server.mode === 'off') {
      if (this.#links.get(client)?.through === null) this.#answeredAt = performance.now();
      return;
    }
    // The name of the server may lead to another one by now.
    this.#drop(client);
    const reason = server?.recovers ? 'the server is a standby (in recovery)' : 'the server is read-only';
    throw new DatabaseAway(reason, new Error(reason), true);
  }

  async #send<Row>(client: Client, text: string, values: readonly unknown[], silenceMs: number): Promise<Row[]> {
    try {
      // Without values, several statements may follow each other.
      const query = { text, ...(values.length > 0 && { values: [...values] }) };
      const answer: Promise<{ rows: unknown[] } | { rows: unknown[] }[]> = client.query(query);
      const result = await this.#unlessSilent(client, answer, silenceMs + NETWORK_MS);
      return ((Array.isArray(result) ? result.at(-1) : result)?.rows ?? []) as Row[];
    } catch (error) {
      const { severity, code = '' } = error as { severity?: string; code?: string };
      const isAnswer = severity !== undefined && text !== COMMIT;
      // PostgreSQL has understood what was sent and cannot take it: another attempt would not help.
      if (isAnswer && /^(22|54)/.test(code))
        throw new OperatorError(`the shared database: ${messageOf(error)}`, 1, { cause: error });
      if (!isAnswer) this.#drop(client);
      throw new DatabaseAway(messageOf(error), error, isAnswer);
    }
  }

  /** Waits for an answer, and ends the connection when nothing has come for some time. */
  async #unlessSilent<T>(client: Client, answer: Promise<T>, silenceMs: number): Promise<T> {
    const socket = this.#links.get(client)?.socket;
    let received = socket?.bytesRead;
    let heardAt = performance.now();
    let timer: NodeJS.Timeout | undefined;
    let mayBeCutOff = this.#detours !== null && this.#links.get(client)?.through === null;
    const silence = new Promise<never>((_, reject) => {
      const giveUp = (reason: string) => {
        socket?.destroy();
        reject(new Error(reason));
      };
      timer = setInterval(() => {
        const now = performance.now();
        if (socket?.bytesRead !== received) {
          received = socket?.bytesRead;
          heardAt = now;
        } else if (now - heardAt >= silenceMs) giveUp('no answer in time');
        else if (mayBeCutOff && now - heardAt >= DOUBT_MS) {
          mayBeCutOff = false;
          void this.#whyUnreachable().then((reason) => reason !== null && giveUp(reason));
        }
      }, silenceMs / CHECKS);
    });
    try {
      return await Promise.race([answer, silence]);
    } finally {
      clearInterval(timer);
    }
  }

  /** Why no further connection can be made on the direct way; null: the server answers, and is busy. */
  async #whyUnreachable(): Promise<string | null> {
    try {
      endClient(await withDeadline(this.#reachBy(directly, false), 'connecting', PROOF_MS, endClient));
      return null;
    } catch (error) {
      const { severity } = ((error as Error).cause ?? {}) as { severity?: string };
      return severity === undefined ? reasonOf(error) : null;
    }
  }

  async #connect(): Promise<Client> {
    if (this.#closed) throw new DatabaseAway('closed', null);
    if (this.#client) return this.#client;
    this.#connecting ??= this.#open().finally(() => {
      this.#connecting = null;
    });
    return this.#connecting;
  }

  async #open(): Promise<Client> {
    const client = await this.#reach();
    if (this.#closed) {
      endClient(client);
      throw new DatabaseAway('closed', null);
    }
    this.#client = client;
    if (this.detour) this.#returnLater();
    return client;
  }

  /** @throws {DatabaseAway} with what the direct way said, and others */
  async #reach(): Promise<Client> {
    const detours = this.#detours;
    const isLate = detours !== null && performance.now() - this.#answeredAt >= detours.afterMs;
    const direct = this.#reachBy(directly, isLate);
    if (!isLate || performance.now() < this.#detourAt) return direct;
    const failure = direct.then(() => null, reasonOf);
    const reason = await Promise.race([failure, delay(PATIENCE_MS, 'it does not answer', { ref: false })]);
    if (reason === null) return direct;
    this.#directReason = reason;
    const other = this.#reachBy(async () => linkOf(await detours.open()), true);
    try {
      const first = await Promise.any([direct, other]);
      const endOther = (client: Client) => client !== first && endClient(client);
      for (const way of [direct, other]) way.then(endOther, () => {}); // one has won
      this.#detourFailures = 0;
      return first;
    } catch (error) {
      this.#detourAt = performance.now() + AGAIN.baseMs + backoffDelay(this.#detourFailures, AGAIN);
      this.#detourFailures += 1;
      throw new DatabaseAway((error as AggregateError).errors.map(reasonOf).join('; '), error);
    }
  }

  #returnLater(): void {
    clearTimeout(this.#returning);
    this.#returning = setTimeout(() => void this.#return(), RETURN_MS).unref();
  }

  /** Takes the direct way as soon as it leads to the server again. What is being asked is answered on the other one. */
  async #return(): Promise<void> {
    try {
      const direct = await this.#reachBy(directly, true);
      const old = this.#client;
      if (this.#closed || old === null || !this.detour) return endClient(direct);
      this.#client = direct;
      this.#turns = this.#turns.then(() => endClient(old));
    } catch (error) {
      this.#directReason = reasonOf(error);
      if (this.detour && !this.#closed) this.#returnLater();
    }
  }

  /**
   * The first of its hosts that serves, and that can be written to.
   * @param mustWrite whether that is asked of the only one, too @throws {DatabaseAway} with what the last one said
   */
  async #reachBy(open: () => Promise<Link>, mustWrite: boolean): Promise<Client> {
    let last: unknown;
    try {
      const { urls, sslMode, files } = parsePostgresUrl(this.url);
      const pems = await this.#pems.read(files);
      for (const url of urls) {
        for (const ssl of waysOf(sslMode, pems)) {
          try {
            return await this.#connectTo(await open(), url, ssl, mustWrite || urls.length > 1);
          } catch (error) {
            last = error;
          }
        }
      }
    } catch (error) {
      last = error;
    }
    throw new DatabaseAway(messageOf(last).replace(ADVICE_OF_NODE, '; set sslrootcert to its authority'), last);
  }

  async #connectTo(
    link: Link,
    connectionString: string,
    ssl: ConnectionOptions | false,
    mustWrite: boolean,
  ): Promise<Client> {
    const { default: pg } = await import('pg');
    const client = new pg.Client({
      ...{ connectionString, ssl, keepAlive: true, pipeline: true, stream: () => link.socket },
      ...{ application_name: 'device-agent gateway', connectionTimeoutMillis: CONNECT_MS },
    });
    this.#links.set(client, link);
    client.on('error', () => this.#drop(client));
    client.on('end', () => this.#drop(client));
    await client.connect();
    try {
      if (mustWrite && !(await isWritable(client))) throw new Error('the server can only be read');
    } catch (error) {
      endClient(client);
      throw error;
    }
    return client;
  }

  #drop(client: Client): void {
    if (this.#client !== client) return;
    this.#client = null;
    endClient(client);
  }
}

const directly = async (): Promise<Link> => ({ socket: new Socket(), through: null });

/** `pg` connects what it is given; that leads to the server already. */
function linkOf({ stream, through }: Detour): Link {
  const connected = () => {
    process.nextTick(() => stream.emit('connect'));
    return stream;
  };
  return { socket: Object.assign(stream, { connect: connected }), through };
}

function reasonOf(error: unknown): string {
  return error instanceof DatabaseAway ? error.reason : messageOf(error);
}

function endClient(client: Client): void {
  void client.end().catch(() => {}); // broken already
}

/** Whether the server has said that a statement has failed: its transaction has changed nothing. */
function isUndone(statement: PromiseSettledResult<unknown>): boolean {
  if (statement.status === 'fulfilled') return false;
  return !(statement.reason instanceof DatabaseAway) || statement.reason.isUntried;
}

/** The transaction did not begin as it should have, but the statement may have been executed without it. */
function asUnknown(error: unknown): unknown {
  return error instanceof DatabaseAway ? new DatabaseAway(messageOf(error.cause), error.cause) : error;
}

type Pems = Partial<Record<keyof PostgresPlace['files'], string>>;

/** Reads the files of TLS. One that is away for a moment is as it was. */
class PemFiles {
  readonly #known = new Map<string, string>();

  async read(files: PostgresPlace['files']): Promise<Pems> {
    const pems = Object.entries(files).map(async ([name, file]) => [name, await this.#content(file)]);
    return Object.fromEntries(await Promise.all(pems)) as Pems;
  }

  async #content(file: string): Promise<string> {
    try {
      const pem = await readFile(file, 'utf8');
      // While it is being written, it is empty.
      if (pem !== '') this.#known.set(file, pem);
    } catch (error) {
      if (!this.#known.has(file)) throw error;
    }
    return this.#known.get(file) ?? '';
  }
}

/** How a connection is tried, one way after the other: libpq's `sslmode`. */
function waysOf(mode: SslMode | null, pems: Pems): (ConnectionOptions | false)[] {
  const unverified = { ...pems, rejectUnauthorized: false };
  const anyName = { ...pems, checkServerIdentity: () => undefined };
  if (mode === null) return Object.keys(pems).length > 0 ? [pems] : [false];
  if (mode === 'disable') return [false];
  if (mode === 'allow') return [false, unverified];
  if (mode === 'prefer') return [unverified, false];
  if (mode === 'require') return [pems.ca === undefined ? unverified : anyName];
  return [mode === 'verify-ca' ? anyName : pems];
}

async function isWritable(client: Client): Promise<boolean> {
  const query = { text: 'SHOW transaction_read_only', query_timeout: QUERY_MS };
  const { rows } = await client.query<{ transaction_read_only: string }>(query);
  return rows[0]?.transaction_read_only === 'off';
}
