import type { Log } from '../lib/log.ts';
import type { Notifier } from './notifier.ts';

/** Milliseconds between two looks at the program. */
const LOOK_MS = 2000;
/** More than any step takes of what the program does all the time; longer silence means that it is stuck. */
const STUCK_MS = 90_000;

/** What systemd is told about. */
export interface SupervisedProgram {
  /** How it is, in one line for `systemctl status`; every change of it is told. */
  describe(): string;
  /** Milliseconds since it last made progress. */
  silentMs(): number;
}

export interface ServiceReportOptions {
  notifier: Pick<Notifier, 'send'>;
  program: SupervisedProgram;
  /** Null: nobody watches. */
  watchdogMs: number | null;
  log: Log;
}

/**
 * Tells systemd the truth about a program: ready once it answers; alive as long as this timer runs, and with it the event
 * loop, and the program makes progress; and what it does, for `systemctl status`. Says nothing while nothing changes, but
 * for the sign of life.
 */
export class ServiceReport {
  #timer: NodeJS.Timeout | null = null;
  #said = '';
  #aliveAt = 0;
  #stuck = false;

  constructor(private readonly options: ServiceReportOptions) {}

  /** To be called when the program has started. */
  async start(): Promise<void> {
    const { notifier, watchdogMs } = this.options;
    this.#said = this.#describe();
    this.#aliveAt = performance.now();
    await notifier.send('READY=1', `STATUS=${this.#said}`);
    this.#timer = setInterval(() => this.#look(), Math.min(LOOK_MS, (watchdogMs ?? LOOK_MS) / 4));
  }

  /** To be called when the program is about to stop. */
  async stop(): Promise<void> {
    if (this.#timer) clearInterval(this.#timer);
    await this.options.notifier.send('STOPPING=1', 'STATUS=stopping');
  }

  #look(): void {
    const { notifier } = this.options;
    const messages = this.#signOfLife();
    const status = this.#describe();
    if (status !== this.#said) messages.push(`STATUS=${status}`);
    this.#said = status;
    if (messages.length > 0) void notifier.send(...messages);
  }

  #signOfLife(): string[] {
    const { program, watchdogMs, log } = this.options;
    if (watchdogMs === null) return [];
    if (program.silentMs() > STUCK_MS) {
      if (!this.#stuck) log.error({ silent_ms: program.silentMs() }, 'no progress; systemd restarts the service');
      this.#stuck = true;
      return [];
    }
    this.#stuck = false;
    const now = performance.now();
    if (now - this.#aliveAt < watchdogMs / 3) return [];
    this.#aliveAt = now;
    return ['WATCHDOG=1'];
  }

  /** On one line, as a message to systemd has to be. */
  #describe(): string {
    return this.options.program.describe().replace(/\s+/g, ' ');
  }
}
