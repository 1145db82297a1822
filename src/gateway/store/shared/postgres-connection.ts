import type { Client } from 'pg';
import { messageOf, OperatorError } from '../../../lib/errors.ts';
import { DatabaseAway } from '../sql/database-problems.ts';

const CONNECT_MS = 3_000;
/** Longest answer to one statement; the connection is given up then. */
export const QUERY_MS = 5_000;

/** @param answerMs milliseconds for the answer */
export type Ask = <Row>(text: string, values?: readonly unknown[], answerMs?: number) => Promise<Row[]>;

/** One connection to PostgreSQL, that is made again when it breaks. */
export class PostgresConnection {
  #client: Client | null = null;
  #connecting: Promise<Client> | null = null;
  #turns: Promise<unknown> = Promise.resolve();
  #closed = false;

  /** @param url `postgres://user:password@host:port/database`, with libpq's parameters such as `sslmode` */
  constructor(private readonly url: string) {}

  async close(): Promise<void> {
    this.#closed = true;
    await this.#client?.end().catch(() => {}); // broken already
  }

  /**
   * Asks while nothing else is asked on the connection, so that a transaction has only what belongs to it.
   * @throws {DatabaseAway} without an answer in time @throws {OperatorError} when it refuses a statement
   */
  async inTurn<T>(work: (ask: Ask) => Promise<T>): Promise<T> {
    const client = await this.#connect();
    const from = performance.now();
    const turn = this.#turns.then(() => {
      // The time in line counts: those behind a statement without an answer fail together with it.
      const waitedMs = performance.now() - from;
      return work((text, values = [], answerMs = QUERY_MS) => this.#ask(client, text, values, answerMs - waitedMs));
    });
    this.#turns = turn.catch(() => {});
    return turn;
  }

  async #ask<Row>(client: Client, text: string, values: readonly unknown[], answerMs: number): Promise<Row[]> {
    try {
      // Without values, several statements may follow each other.
      const query = { text, ...(values.length > 0 && { values: [...values] }), query_timeout: Math.max(1, answerMs) };
      const { rows } = await client.query(query);
      return rows as Row[];
    } catch (error) {
      if (isRefusal(error)) throw new OperatorError(`the shared database: ${messageOf(error)}`, 1, { cause: error });
      this.#drop(client);
      throw new DatabaseAway(messageOf(error), error);
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
    const { default: pg } = await import('pg');
    const client = new pg.Client({
      connectionString: this.url,
      application_name: 'device-agent gateway',
      connectionTimeoutMillis: CONNECT_MS,
      keepAlive: true,
    });
    client.on('error', () => this.#drop(client));
    client.on('end', () => this.#drop(client));
    try {
      await client.connect();
    } catch (error) {
      throw new DatabaseAway(messageOf(error), error);
    }
    if (this.#closed) {
      void client.end().catch(() => {}); // broken already
      throw new DatabaseAway('closed', null);
    }
    this.#client = client;
    return client;
  }

  #drop(client: Client): void {
    if (this.#client !== client) return;
    this.#client = null;
    void client.end().catch(() => {}); // broken already
  }
}

/** Whether PostgreSQL has understood a statement and refused it: another attempt would not help. */
function isRefusal(error: unknown): boolean {
  const { severity, code = '' } = error as { severity?: string; code?: string };
  // Not while it starts or stops, has no connections left, or only reads after a failover.
  return severity !== undefined && !/^(57P|08|53|25006)/.test(code);
}
