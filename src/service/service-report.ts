import type { Agent, AgentStatus } from '../agent/agent.ts';
import type { Log } from '../lib/log.ts';
import type { Notifier } from './notifier.ts';

/** Milliseconds between two looks at the agent. */
const LOOK_MS = 2000;
/** How much longer than any step of keeping the session takes; longer silence means that it is stuck. */
const STUCK_MS = 90_000;

export interface ServiceReportOptions {
  notifier: Pick<Notifier, 'send'>;
  agent: Pick<Agent, 'status' | 'silentMs'>;
  /** Null: nobody watches. */
  watchdogMs: number | null;
  log: Log;
}

/**
 * Tells systemd the truth about an agent: ready once it answers; alive as long as this timer runs, and with it the event
 * loop, and the keeping of the session makes progress, whether there is a network or not; and what it does, for
 * `systemctl status`. Says nothing while nothing changes, but for the sign of life.
 */
export class ServiceReport {
  #timer: NodeJS.Timeout | null = null;
  #said = '';
  #aliveAt = 0;
  #stuck = false;

  constructor(private readonly options: ServiceReportOptions) {}

  /** To be called when the agent has started. */
  async start(): Promise<void> {
    const { notifier, agent, watchdogMs } = this.options;
    this.#said = describeStatus(agent.status());
    this.#aliveAt = performance.now();
    await notifier.send('READY=1', `STATUS=${this.#said}`);
    this.#timer = setInterval(() => this.#look(), Math.min(LOOK_MS, (watchdogMs ?? LOOK_MS) / 4));
  }

  /** To be called when the agent is about to stop. */
  async stop(): Promise<void> {
    if (this.#timer) clearInterval(this.#timer);
    await this.options.notifier.send('STOPPING=1', 'STATUS=stopping');
  }

  #look(): void {
    const { notifier, agent } = this.options;
    const messages = this.#signOfLife();
    const status = describeStatus(agent.status());
    if (status !== this.#said) messages.push(`STATUS=${status}`);
    this.#said = status;
    if (messages.length > 0) void notifier.send(...messages);
  }

  #signOfLife(): string[] {
    const { agent, watchdogMs, log } = this.options;
    if (watchdogMs === null) return [];
    if (agent.silentMs() > STUCK_MS) {
      if (!this.#stuck)
        log.error({ silent_ms: agent.silentMs() }, 'keeping the session is stuck; systemd will restart the agent');
      this.#stuck = true;
      return [];
    }
    this.#stuck = false;
    const now = performance.now();
    if (now - this.#aliveAt < watchdogMs / 3) return [];
    this.#aliveAt = now;
    return ['WATCHDOG=1'];
  }
}

function describeStatus({ session, tunnels }: AgentStatus): string {
  const { online, connecting, offline, failed } = tunnels;
  const reason = session.state === 'online' || !session.lastError ? '' : ` (${session.lastError.message})`;
  const text = `${session.state}, ${session.gateway}${reason}; ${online} of ${online + connecting + offline + failed} tunnels up`;
  return text.replace(/\s+/g, ' ');
}
