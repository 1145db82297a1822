import type { Duplex } from 'node:stream';
import { Connection } from '../../../agent-protocol/connection.ts';
import type { HeartbeatProbe } from '../../../agent-protocol/heartbeat.ts';
import { type BulkRequest, CommandAnswer, StreamType } from '../../../agent-protocol/messages.ts';
import { messageOf } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log/log.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import { withSignal } from '../../../lib/time/deadline.ts';
import { redact } from '../gateway-error.ts';
import { call } from './call.ts';
import { openProbe, SILENT_TICKS, TICK_MS } from './session-heartbeat.ts';

const DEADLINE_MS = 10_000;
/** Milliseconds after an attempt until the next one. */
const RETRY_MS = 30_000;

export interface BulkLinkOptions {
  /** The session's first connection. */
  main: Connection;
  connect: (signal: AbortSignal) => Promise<Duplex>;
  request: BulkRequest;
  clock: Clock;
  log: Log;
}

/**
 * The session's second connection. Bulk streams move there, so that the bytes of others do not wait behind theirs. It opens
 * when a bulk stream first has company, and stays; heartbeats check it only while it carries something.
 */
export class BulkLink {
  #connection: Connection | null = null;
  #probe: HeartbeatProbe | null = null;
  #isOpening = false;
  #triedAt = Number.NEGATIVE_INFINITY;
  #heardAt = 0;
  #silent = 0;

  constructor(private readonly options: BulkLinkOptions) {}

  /** Opens the connection unless it is there, or an attempt was made a moment ago. */
  want(signal: AbortSignal): void {
    const now = performance.now();
    if (this.#connection !== null || this.#isOpening || now - this.#triedAt < RETRY_MS) return;
    this.#triedAt = now;
    this.#isOpening = true;
    const { clock, log, request } = this.options;
    const work = (signal: AbortSignal) => this.#open(signal);
    withSignal(work, 'opening a connection for bulk', DEADLINE_MS, signal, clock)
      .catch((error: unknown) => {
        log.debug({ reason: redact(messageOf(error), request.AuthToken) }, 'no connection for bulk');
      })
      .finally(() => {
        this.#isOpening = false;
      });
  }

  /** Closes the connection when it carries something and the gateway no longer answers on it. */
  tick(): void {
    const connection = this.#connection;
    if (connection === null || !this.options.main.usesBulk) {
      this.#silent = 0;
      return;
    }
    this.#silent = connection.lastReadAt === this.#heardAt ? this.#silent + 1 : 0;
    this.#heardAt = connection.lastReadAt;
    if (this.#silent >= SILENT_TICKS) connection.close(new Error('the gateway no longer answers'));
    else void this.#probe?.ask(SILENT_TICKS * TICK_MS);
  }

  /** Resolves once the gateway has everything that was sent, or the connection has ended. */
  async delivered(): Promise<void> {
    await this.#probe?.ask(DEADLINE_MS);
  }

  async #open(signal: AbortSignal): Promise<void> {
    const { main, connect, request } = this.options;
    const socket = await connect(signal);
    if (signal.aborted) {
      socket.destroy();
      signal.throwIfAborted();
    }
    const connection: Connection = new Connection(
      socket,
      { accept: (channel) => channel.abort(), ended: () => this.#forget(connection) },
      'agent',
    );
    signal.addEventListener('abort', () => connection.close(new Error(messageOf(signal.reason))));
    connection.start();
    this.#connection = connection;
    this.#probe = openProbe(connection);
    // The gateway may move streams before its answer is read.
    main.attachBulk(connection);
    const { Error: refusal } = await call(connection, StreamType.bulk, request, CommandAnswer);
    if (refusal !== '') {
      connection.close(new Error(refusal));
      throw new Error(refusal);
    }
    main.moveBulk();
  }

  #forget(connection: Connection): void {
    if (this.#connection !== connection) return;
    this.#connection = null;
    this.#probe = null;
  }
}
