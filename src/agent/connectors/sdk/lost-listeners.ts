import { type Listener, SessionBuilder } from '@ngrok/ngrok';
import type { Clock } from '../../../lib/clock.ts';
import { withDeadline } from '../../../lib/deadline.ts';
import { messageOf } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log.ts';
import { openLoopbackGateway } from './loopback-gateway.ts';

/** Until what was lost is back: a thousand tunnels that are bound again need the processor more. */
export const PAUSE_MS = 10_000;
/** For each call of the SDK, of which none has a limit of its own. */
const DEADLINE_MS = 15_000;

export interface LostListenersOptions {
  clock: Clock;
  log: Log;
  /** Where the sessions that clear up are connected to; replaced by tests. */
  openGateway?: typeof openLoopbackGateway;
}

/**
 * Has the SDK let go of the listeners of lost sessions, and of the sessions behind them.
 *
 * The SDK keeps each listener in a table of the process until the gateway has agreed that it is closed. On a lost
 * session that call rejects, and a method that rejects keeps its object for ever (1.7.0: the reference to `this`, which
 * the SDK's binding to Node holds during a call, is given back after a success alone). One such object keeps its whole
 * session: 31 KB with ten tunnels, at every reconnect, for the years that a device runs.
 *
 * But the table is the process's, and any session can close any listener in it, by its id. So a session that is fine
 * does it: one with ourselves, for then neither the real gateway nor the link to it has anything to do with that.
 */
export class LostListeners {
  readonly #lost = new Set<Listener>();
  #builder: SessionBuilder | null = null;
  #callOff: (() => void) | null = null;
  #closed = false;

  constructor(private readonly options: LostListenersOptions) {}

  /** Takes listeners whose sessions are over; they are cleared away a while later. */
  add(listeners: Iterable<Listener>): void {
    if (this.#closed) return;
    for (const listener of listeners) this.#lost.add(listener);
    this.#schedule();
  }

  /** Leaves the rest as it is: the process ends. */
  close(): void {
    this.#closed = true;
    this.#lost.clear();
    this.#callOff?.();
  }

  #schedule(): void {
    if (this.#lost.size === 0) return;
    this.#callOff ??= this.options.clock.after(PAUSE_MS, () => void this.#clear());
  }

  async #clear(): Promise<void> {
    const { log } = this.options;
    const count = this.#lost.size;
    try {
      await this.#closeAll();
      log.debug({ listeners: count }, 'lost listeners closed');
    } catch (error) {
      log.debug({ reason: messageOf(error) }, 'lost listeners could not be closed');
      await this.#closeThemselves();
    }
    this.#callOff = null;
    this.#schedule();
  }

  async #closeAll(): Promise<void> {
    const gateway = await (this.options.openGateway ?? openLoopbackGateway)();
    try {
      // A builder whose connect() rejects stays for ever as well: one for all.
      this.#builder ??= new SessionBuilder().handleDisconnection(() => false);
      const builder = this.#builder.serverAddr(gateway.address).caCert(Buffer.from(gateway.cert));
      const session = await this.#inTime(builder.connect());
      try {
        for (const listener of this.#lost) {
          await this.#inTime(session.closeListener(listener.id()));
          this.#lost.delete(listener);
        }
      } finally {
        await this.#inTime(session.close());
      }
    } finally {
      gateway.close();
    }
  }

  #inTime<T>(call: Promise<T>): Promise<T> {
    return withDeadline(call, 'clearing away lost listeners', DEADLINE_MS, undefined, this.options.clock);
  }

  /** Empties the SDK's table at least; what it costs in memory is as said above. */
  async #closeThemselves(): Promise<void> {
    const left = [...this.#lost];
    this.#lost.clear();
    await Promise.allSettled(left.map((listener) => listener.close()));
  }
}
