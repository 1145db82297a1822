import type { Log } from '../../lib/log/log.ts';
import type { Nodes } from './nodes.ts';
import type { OnlineRows } from './online-rows.ts';

/** Sessions that may go elsewhere. */
export interface MovableSessions {
  readonly count: number;
  /** Ends some that have none elsewhere, so that their agents connect again. @returns how many */
  move(most: number): number;
}

/** How many agents go in each step. The first ones show whether the others would arrive. */
const STEPS = [3, 10, 50] as const;
/** Between steps: agents are back within a second, and the others know that soon after. */
const STEP_MS = 5_000;
/** Of the agents of a step, such a share has to arrive before more go. A load balancer may lead a few elsewhere by chance. */
const ARRIVED_SHARE = 1 / 4;
const MAX_MISSES = 3;

interface Return {
  due: number;
  step: number;
  /** Steps in a row whose agents went elsewhere. */
  misses: number;
  moved: number;
  /** Its sessions before the last step. */
  sessions: number;
}

/**
 * Gives a gateway that has come back its share of the agents. Those with a session at two gateways go there on their own; others
 * stay where they went, so that the gateway would have none for weeks, and nobody would know whether its new version serves them.
 *
 * An agent that reconnects goes wherever DNS or a load balancer leads it. When the first ones do not arrive, the others stay.
 */
export class AgentReturns {
  /** Gateways that take agents, as of the last look; null before it. */
  #open: ReadonlySet<string> | null = null;
  readonly #returns = new Map<string, Return>();

  constructor(
    private readonly context: { nodes: Nodes; rows: Pick<OnlineRows, 'of'>; log: Log },
    private readonly own: {
      /** The gateway whose new version is on trial, or null. */
      onTrial: () => string | null;
      /** Milliseconds that only grow. */
      now?: () => number;
    },
  ) {}

  look(sessions: MovableSessions): void {
    const { nodes } = this.context;
    const now = this.own.now?.() ?? performance.now();
    const open = nodes.isDraining(nodes.self) ? null : new Set(nodes.others().map(({ id }) => id));
    for (const id of this.#open === null ? [] : (open ?? []))
      if (!this.#open?.has(id))
        this.#returns.set(id, { due: now + STEP_MS, step: 0, misses: 0, moved: 0, sessions: 0 });
    this.#open = open;
    for (const [id, one] of this.#returns) {
      if (!open?.has(id)) this.#returns.delete(id);
      else if (now >= one.due) this.#go(id, { ...one, due: now + STEP_MS }, sessions);
    }
  }

  #go(id: string, one: Return, sessions: MovableSessions): void {
    const { nodes, log } = this.context;
    const there = this.#sessionsOf(id);
    const address = nodes.all.find((node) => node.id === id)?.address;
    const arrived = there - one.sessions;
    const hasMissed = one.moved > 0 && arrived < one.moved * ARRIVED_SHARE;
    const misses = hasMissed ? one.misses + 1 : 0;
    if (misses === MAX_MISSES) {
      log.info({ address, sessions: there }, 'agents do not come back to a gateway: the others stay');
      return void this.#returns.delete(id);
    }
    // Until it is known to serve them, no more than necessary: but one, even where there is no other.
    const isOnTrial = this.own.onTrial() === id;
    const step = hasMissed ? 0 : one.step;
    if (step > 0 && isOnTrial) return void this.#returns.set(id, one);
    const share = Math.max(this.#shareOf(id, there, sessions), isOnTrial && there === 0 ? 1 : 0);
    const most = Math.min(share, STEPS[Math.min(step, STEPS.length - 1)] ?? 0);
    const moved = most > 0 ? sessions.move(most) : 0;
    if (moved === 0) return void this.#returns.delete(id);
    log.info({ address, sessions: moved }, 'agents go back to a gateway');
    this.#returns.set(id, { ...one, step: step + 1, misses, moved, sessions: there });
  }

  /** How many of the agents here go there: each gateway with more than the average gives its part of what is missing. */
  #shareOf(id: string, there: number, { count }: MovableSessions): number {
    const others = [...(this.#open ?? [])].map((other) => (other === id ? there : this.#sessionsOf(other)));
    const all = [...others, count];
    const average = all.reduce((sum, each) => sum + each, 0) / all.length;
    const surplus = all.reduce((sum, each) => sum + Math.max(0, each - average), 0);
    if (count <= average || there >= average || count - there < 2) return 0;
    return Math.ceil(((average - there) * (count - average)) / surplus);
  }

  #sessionsOf(node: string): number {
    let sessions = 0;
    for (const { key } of this.context.rows.of(node)) if (key.startsWith(`${node} ts_`)) sessions += 1;
    return sessions;
  }
}
