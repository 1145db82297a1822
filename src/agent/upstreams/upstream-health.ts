import { hasErrno, messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { AgentError } from '../errors/agent-error.ts';
import { displayUpstream, type Upstream } from './upstream.ts';

export const UPSTREAM_STATES = ['unknown', 'answers', 'refused', 'unreachable'] as const;
/** `refused`: nothing listens there; `unreachable`: any other failure, such as no answer; `unknown`: not checked yet. */
export type UpstreamState = (typeof UPSTREAM_STATES)[number];

export interface UpstreamStatus {
  readonly state: UpstreamState;
  /** When it changed to this state; null while unknown. */
  readonly since: Date | null;
  /** The last connection that succeeded or failed; null while unknown. */
  readonly checkedAt: Date | null;
  /** Why the last connection failed; null when it did not. */
  readonly reason: string | null;
}

/** Between two log lines about an upstream that stays unreachable. */
const REPEAT_MS = 10 * 60_000;

const UNKNOWN: UpstreamStatus = { state: 'unknown', since: null, checkedAt: null, reason: null };

/** Whether an upstream with this state keeps its tunnels from working. */
export function isDown({ state }: UpstreamStatus): boolean {
  return state === 'refused' || state === 'unreachable';
}

/**
 * Whether one upstream accepts connections. Logs when it becomes unreachable, again every 10 minutes while clients ask for
 * it, and when it is back.
 */
export class UpstreamHealth {
  #status = UNKNOWN;
  #checkedAt = Number.NEGATIVE_INFINITY;
  /** Connections of clients that failed and are not logged yet. */
  #times = 0;
  #loggedAt = Number.NEGATIVE_INFINITY;
  /** Warns once: the operator does not always control what a name resolves to. */
  #warned = false;

  constructor(
    readonly upstream: Upstream,
    private readonly log: Log,
    private readonly now: () => number = () => performance.now(),
  ) {}

  get status(): UpstreamStatus {
    return this.#status;
  }

  /** Milliseconds since the last connection that succeeded or failed; infinite while unknown. */
  get ageMs(): number {
    return this.now() - this.#checkedAt;
  }

  answered(): void {
    const wasDown = isDown(this.#status);
    this.#set('answers', null);
    if (!wasDown) return;
    this.#times = 0;
    this.log.info({ upstream: displayUpstream(this.upstream) }, 'upstream reachable again');
  }

  /** @param forClient whether a client was waiting, rather than a check */
  failed(error: unknown, forClient: boolean): void {
    const wasDown = isDown(this.#status);
    const reason = messageOf(error);
    this.#set(isRefusal(error) ? 'refused' : 'unreachable', reason);
    const upstream = displayUpstream(this.upstream);
    if (error instanceof AgentError && error.code === 'ERR_AGENT_UPSTREAM_NOT_ALLOWED') {
      if (!this.#warned) this.log.warn({ upstream, reason }, 'upstream not allowed; connection rejected');
      this.#warned = true;
      return;
    }
    if (forClient) this.#times++;
    if (wasDown && (!forClient || this.now() - this.#loggedAt < REPEAT_MS)) return;
    this.log.warn({ upstream, reason, times: this.#times }, 'upstream unreachable');
    this.#times = 0;
    this.#loggedAt = this.now();
  }

  #set(state: UpstreamState, reason: string | null): void {
    const checkedAt = new Date();
    const since = this.#status.state === state ? this.#status.since : checkedAt;
    this.#status = { state, since, checkedAt, reason };
    this.#checkedAt = this.now();
  }
}

/** Whether the upstream's machine answered that nothing listens there. */
function isRefusal(error: unknown): boolean {
  if (error instanceof AggregateError) return error.errors.some(isRefusal);
  return hasErrno(error, 'ECONNREFUSED') || hasErrno(error, 'ENOENT');
}

/** The upstreams in use, each with its health. */
export class UpstreamHealths {
  readonly #held = new Map<string, { health: UpstreamHealth; holders: number }>();

  constructor(
    private readonly log: Log,
    private readonly now?: () => number,
  ) {}

  values(): UpstreamHealth[] {
    return [...this.#held.values()].map(({ health }) => health);
  }

  get size(): number {
    return this.#held.size;
  }

  /** @param forwardsTo as {@link displayUpstream} shows it */
  statusOf(forwardsTo: string): UpstreamStatus {
    return this.#held.get(forwardsTo)?.health.status ?? UNKNOWN;
  }

  /** Remembers an upstream until {@link release} was called as often as this. */
  hold(upstream: Upstream): UpstreamHealth {
    const key = displayUpstream(upstream);
    const held = this.#held.get(key) ?? { health: new UpstreamHealth(upstream, this.log, this.now), holders: 0 };
    held.holders++;
    this.#held.set(key, held);
    return held.health;
  }

  release(upstream: Upstream): void {
    const key = displayUpstream(upstream);
    const held = this.#held.get(key);
    if (held && --held.holders === 0) this.#held.delete(key);
  }
}
