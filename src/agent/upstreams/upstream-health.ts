import { hasErrno, messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { AgentError } from '../errors/agent-error.ts';
import { displayUpstream, type Upstream } from './upstream.ts';
import type { HttpFindings } from './upstream-check.ts';

export const UPSTREAM_STATES = ['unknown', 'answers', 'refused', 'unreachable', 'wrong_protocol', 'hangs'] as const;
/**
 * `refused`: nothing listens there; `unreachable`: any other failure, such as no answer; `wrong_protocol`: accepts
 * connections, but does not speak the tunnel's protocol; `hangs`: accepts connections, and keeps many open after clients have
 * left; `unknown`: not checked yet.
 */
export type UpstreamState = (typeof UPSTREAM_STATES)[number];

export interface UpstreamStatus {
  readonly state: UpstreamState;
  /** When it changed to this state; null while unknown. */
  readonly since: Date | null;
  /** The last connection that succeeded or failed; null while unknown. */
  readonly checkedAt: Date | null;
  /** Why the last connection failed, or what the upstream speaks instead; null when it works. */
  readonly reason: string | null;
}

/** Between two log lines about an upstream that stays unreachable. */
const REPEAT_MS = 10 * 60_000;
/** Abandoned connections at which an upstream hangs: a few clients may well wait after they have ended their side. */
const HANGS = 32;
const HANGS_NO_LONGER = 8;
/** Milliseconds in which the agent has had to close none itself: only then does the upstream close them. */
const CLOSES_MS = 30_000;

export const UNKNOWN: UpstreamStatus = { state: 'unknown', since: null, checkedAt: null, reason: null };

/** Whether an upstream with this state keeps its tunnels from working. */
export function isDown({ state }: UpstreamStatus): boolean {
  return state === 'refused' || state === 'unreachable' || state === 'wrong_protocol' || state === 'hangs';
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
  /** Whether a request has shown what the upstream speaks since it last failed. */
  #spoken = false;
  #exposedPath: string | null = null;
  #abandoned = 0;
  #hangsSince: Date | null = null;
  #gaveUpAt = Number.NEGATIVE_INFINITY;
  /** Whether the SDK connects to it without the agent, or has done so. */
  isDirect = false;
  /** Whether it has hung once: from now on, the agent owns its connections, and can close them. */
  needsRelay = false;

  constructor(
    readonly upstream: Upstream,
    /** Whether it can be asked by a request of HTTP/1.1. */
    readonly isHttp: boolean,
    private readonly log: Log,
    private readonly now: () => number = () => performance.now(),
  ) {}

  get status(): UpstreamStatus {
    if (this.#hangsSince === null || isDown(this.#status)) return this.#status;
    const reason =
      this.#abandoned < HANGS_NO_LONGER
        ? 'connections that clients have left stay open until the agent closes them'
        : `${this.#abandoned} connections that clients have left are still open`;
    return { ...this.#status, state: 'hangs', since: this.#hangsSince, reason };
  }

  /** Connections that clients have left, and the upstream keeps open. */
  get abandoned(): number {
    return this.#abandoned;
  }

  /** @returns whether it hangs for the first time */
  keepsOpen(abandoned: number): boolean {
    const upstream = displayUpstream(this.upstream);
    this.#abandoned = abandoned;
    const closes = abandoned < HANGS_NO_LONGER && this.now() - this.#gaveUpAt >= CLOSES_MS;
    if (closes && this.#hangsSince !== null) {
      this.#hangsSince = null;
      this.log.info({ upstream }, 'upstream has closed its abandoned connections');
    }
    if (abandoned < HANGS || this.#hangsSince !== null) return false;
    this.#hangsSince = new Date();
    this.log.warn({ upstream, abandoned }, 'upstream keeps connections open that clients have left');
    const isFirst = !this.needsRelay;
    this.needsRelay = true;
    return isFirst;
  }

  /** The agent has closed a connection that its client had left and the upstream kept open. */
  gaveUp(): void {
    this.#gaveUpAt = this.now();
  }

  /** Milliseconds since the last connection that succeeded or failed; infinite while unknown. */
  get ageMs(): number {
    return this.now() - this.#checkedAt;
  }

  /** Where the upstream serves the agent's data folder; null: nowhere that is known. */
  get exposedPath(): string | null {
    return this.#exposedPath;
  }

  /** Whether a check should send a request. Without a reader, what speaks another protocol is left alone: it may log each. */
  asksRequest(forReader: boolean): boolean {
    return this.isHttp && (!this.#spoken || (forReader && this.#status.state === 'wrong_protocol'));
  }

  /** A request of a check has been answered. */
  spoke({ problem, exposedPath }: HttpFindings): void {
    this.#spoken = true;
    const upstream = displayUpstream(this.upstream);
    if (exposedPath !== null && this.#exposedPath === null)
      this.log.warn(
        { upstream, path: exposedPath },
        'upstream serves the data folder with its secrets; serve another folder',
      );
    this.#exposedPath = exposedPath;
    if (problem === null) {
      this.#works();
      return;
    }
    if (this.#status.state !== 'wrong_protocol')
      this.log.warn({ upstream, reason: problem }, 'upstream speaks another protocol');
    this.#set('wrong_protocol', problem);
  }

  answered(): void {
    if (this.#status.state === 'wrong_protocol') this.#checkedAt = this.now();
    else this.#works();
  }

  #works(): void {
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
    this.#spoken = false;
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

/** What of a tunnel decides how its upstream is checked. */
export interface CheckedUpstream {
  upstream: Upstream;
  /** Whether it can be asked by a request of HTTP/1.1. */
  isHttp: boolean;
}

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
  find(forwardsTo: string, isHttp: boolean): UpstreamHealth | null {
    return this.#held.get(keyOf(forwardsTo, isHttp))?.health ?? null;
  }

  /** Remembers an upstream until {@link release} was called as often as this. */
  hold({ upstream, isHttp }: CheckedUpstream): UpstreamHealth {
    const key = keyOf(displayUpstream(upstream), isHttp);
    const held = this.#held.get(key) ?? {
      health: new UpstreamHealth(upstream, isHttp, this.log, this.now),
      holders: 0,
    };
    held.holders++;
    this.#held.set(key, held);
    return held.health;
  }

  release({ upstream, isHttp }: CheckedUpstream): void {
    const key = keyOf(displayUpstream(upstream), isHttp);
    const held = this.#held.get(key);
    if (held && --held.holders === 0) this.#held.delete(key);
  }
}

function keyOf(forwardsTo: string, isHttp: boolean): string {
  return `${isHttp ? 'http' : 'bytes'} ${forwardsTo}`;
}
