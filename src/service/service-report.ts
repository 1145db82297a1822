import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { messageOf } from '../lib/errors.ts';
import type { Log } from '../lib/log/log.ts';
import type { ServiceManagerSettings } from '../settings/common-settings.ts';

/** Milliseconds between checks of the program. */
const CHECK_MS = 2000;
/** Longer than any step of the program's main task takes; after that, it counts as stuck. */
const STUCK_MS = 90_000;

/** A program whose state is reported to systemd. */
export interface SupervisedProgram {
  /** The program's state in one line for `systemctl status`. */
  describe(): string;
  /** Milliseconds since it last made progress. */
  silentMs(): number;
}

/**
 * Reports a program to systemd: readiness, changes of its state, and watchdog notifications. These stop when the event
 * loop or the program hangs; systemd then restarts the service.
 */
export class ServiceReport {
  #timer: NodeJS.Timeout | null = null;
  #sentStatus = '';
  #lastWatchdog = 0;
  #stuck = false;

  constructor(
    private readonly options: {
      notifier: Pick<Notifier, 'send'>;
      program: SupervisedProgram;
      /** Null: no watchdog. */
      watchdogMs: number | null;
      log: Log;
    },
  ) {}

  /** Call this when the program has started. */
  async start(): Promise<void> {
    const { notifier, watchdogMs } = this.options;
    this.#sentStatus = this.#describe();
    this.#lastWatchdog = performance.now();
    await notifier.send('READY=1', `STATUS=${this.#sentStatus}`);
    this.#timer = setInterval(() => this.#check(), Math.min(CHECK_MS, (watchdogMs ?? CHECK_MS) / 4));
  }

  /** Call this when the program begins to stop. */
  async stop(): Promise<void> {
    if (this.#timer) clearInterval(this.#timer);
    await this.options.notifier.send('STOPPING=1', 'STATUS=stopping');
  }

  #check(): void {
    const { notifier } = this.options;
    const messages = this.#watchdog();
    const status = this.#describe();
    if (status !== this.#sentStatus) messages.push(`STATUS=${status}`);
    this.#sentStatus = status;
    if (messages.length > 0) void notifier.send(...messages);
  }

  #watchdog(): string[] {
    const { program, watchdogMs, log } = this.options;
    if (watchdogMs === null) return [];
    if (program.silentMs() > STUCK_MS) {
      if (!this.#stuck) log.error({ silent_ms: program.silentMs() }, 'no progress; systemd restarts the service');
      this.#stuck = true;
      return [];
    }
    this.#stuck = false;
    const now = performance.now();
    if (now - this.#lastWatchdog < watchdogMs / 3) return [];
    this.#lastWatchdog = now;
    return ['WATCHDOG=1'];
  }

  /** A notification must not contain line breaks. */
  #describe(): string {
    return this.options.program.describe().replace(/\s+/g, ' ');
  }
}

const SEND_DEADLINE_MS = 10_000;

/**
 * Sends notifications to systemd in order (sd_notify(3)). Node does not support datagram unix sockets, so each one starts
 * a systemd-notify process, which takes 3 ms of this process's time on a PC.
 */
export class Notifier {
  #last: Promise<void> = Promise.resolve();

  constructor(
    private readonly settings: ServiceManagerSettings,
    private readonly log: Log,
  ) {}

  /**
   * Never rejects: failures are logged.
   *
   * @param assignments for example `READY=1`
   */
  send(...assignments: string[]): Promise<void> {
    this.#last = this.#last.then(() => this.#run(assignments));
    return this.#last;
  }

  async #run(assignments: string[]): Promise<void> {
    const env = { PATH: '/usr/local/bin:/usr/bin:/bin', NOTIFY_SOCKET: this.settings.socket };
    try {
      await promisify(execFile)('systemd-notify', assignments, { env, timeout: SEND_DEADLINE_MS });
    } catch (error) {
      this.log.error(
        { reason: messageOf(error), assignments },
        'systemd notification failed; check that systemd-notify is installed',
      );
    }
  }
}
