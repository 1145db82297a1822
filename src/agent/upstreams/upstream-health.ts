import { hasErrno, messageOf } from '../../lib/errors.ts';
import { beginningProblem } from '../../lib/http/response-head.ts';
import type { Log } from '../../lib/log/log.ts';
import { displayUpstream, type Upstream } from '../../lib/network/upstream-address.ts';
import { UpstreamFault, type UpstreamTls } from '../connectors/connector.ts';
import { AgentError } from '../errors/agent-error.ts';
import { type HttpFindings, PROBES, type UpstreamProbe } from './upstream-check.ts';

export const UPSTREAM_STATES = [
  'unknown',
  'answers',
  'refused',
  'unreachable',
  'tls_failed',
  'wrong_protocol',
  'hangs',
] as const;
/**
 * `refused`: nothing listens there; `unreachable`: any other failure, such as no answer; `tls_failed`: accepts connections, but
 * TLS fails; `wrong_protocol`: accepts connections, but does not speak the tunnel's protocol, or has just sent a client what the
 * gateway refused; `hangs`: accepts connections, and keeps many open after clients have
 * left; `unknown`: not checked yet.
 */
export type UpstreamCondition = (typeof UPSTREAM_STATES)[number];

export interface UpstreamStatus {
  readonly state: UpstreamCondition;
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
/** Milliseconds for which a refused response counts more than what the agent's own requests get: clients ask for other things. */
const REFUSED_MS = 60_000;

/** An upstream that refuses connections works if another one has carried a response within so many milliseconds. */
const BUSY_MS = 25_000;

export const UNKNOWN: UpstreamStatus = { state: 'unknown', since: null, checkedAt: null, reason: null };

/** Whether an upstream with this state keeps its tunnels from working. */
export function isDown({ state }: UpstreamStatus): boolean {
  return state !== 'unknown' && state !== 'answers';
}

/** States in which no connection to it succeeds. */
const OUT_OF_REACH: readonly UpstreamCondition[] = ['refused', 'unreachable', 'tls_failed'];

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
  /** The request that it has answered, or that comes next. */
  #probe: UpstreamProbe | null = null;
  /** Whether a client has got a response since it last failed. */
  #heard = false;
  #heardAt = Number.NEGATIVE_INFINITY;
  #exposedPath: string | null = null;
  readonly #reachWatchers = new Set<(isReachable: boolean) => void>();
  #abandoned = 0;
  #hangsSince: Date | null = null;
  #gaveUpAt = Number.NEGATIVE_INFINITY;
  /** When the gateway last refused a response of it; and when that was last logged. */
  #refusedAt = Number.NEGATIVE_INFINITY;
  #refusalLoggedAt = Number.NEGATIVE_INFINITY;
  /** Whether the SDK connects to it without the agent, or has done so. */
  isDirect = false;
  /** The only address of several at which the SDK reaches it then; null: the SDK tries all. */
  directAddress: string | null = null;
  /** Connections of clients that the agent has made. */
  open = 0;
  /**
   * Whether the agent has to own its connections from now on: to close them once it has hung, because it has moved, to see
   * whether clients get responses, or to read what the SDK would not after an upload was lost.
   */
  needsRelay = false;

  constructor(
    readonly upstream: Upstream,
    /** Whether it can be asked by a request of HTTP/1.1. */
    readonly isHttp: boolean,
    private readonly log: Log,
    private readonly now: () => number = () => performance.now(),
    readonly tls: UpstreamTls = {},
  ) {}

  get status(): UpstreamStatus {
    if (this.#hangsSince === null || isDown(this.#status)) return this.#status;
    const reason =
      this.#abandoned < HANGS_NO_LONGER
        ? 'connections that clients have left stay open until the agent closes them'
        : `${this.#abandoned} connections that clients have left are still open`;
    return { ...this.#status, state: 'hangs', since: this.#hangsSince, reason };
  }

  get #isReachable(): boolean {
    return !OUT_OF_REACH.includes(this.#status.state);
  }

  /** Calls the listener with whether connections to it succeed, now and at each change. @returns ends it */
  watchReach(listener: (isReachable: boolean) => void): () => void {
    this.#reachWatchers.add(listener);
    listener(this.#isReachable);
    return () => this.#reachWatchers.delete(listener);
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

  /**
   * A check has reached the upstream.
   *
   * @returns whether it has moved to where the SDK does not look
   */
  reachedAt(address: string | undefined): boolean {
    if (this.directAddress === null || this.needsRelay || address === this.directAddress) return false;
    this.needsRelay = true;
    return true;
  }

  /** The agent has closed a connection that its client had left and the upstream kept open. */
  gaveUp(): void {
    this.#gaveUpAt = this.now();
  }

  /** Milliseconds since the last connection that succeeded or failed, or a client got something; infinite while unknown. */
  get ageMs(): number {
    const since = this.#status.state === 'answers' ? Math.max(this.#checkedAt, this.#heardAt) : this.#checkedAt;
    return this.now() - since;
  }

  /** The requests of a check, best first. What has answered none gets one only: it may log each. */
  get probes(): readonly UpstreamProbe[] {
    if (this.#status.state === 'wrong_protocol') return ['GET'];
    return this.#probe === null ? PROBES : [this.#probe, ...PROBES.filter((probe) => probe !== this.#probe)];
  }

  /** Where the upstream serves the agent's data folder; null: nowhere that is known. */
  get exposedPath(): string | null {
    return this.#exposedPath;
  }

  /** Whether a check should send a request. Without a reader, what speaks another protocol is left alone: it may log each. */
  asksRequest(forReader: boolean): boolean {
    return this.isHttp && (!this.#spoken || (forReader && this.#status.state === 'wrong_protocol'));
  }

  /**
   * A request of a check has been answered.
   *
   * @returns whether the agent has to see what clients get, because the check may be wrong
   */
  spoke({ problem, exposedPath, isDoubtful = false, probe }: HttpFindings): boolean {
    this.#spoken = true;
    this.#probe = probe ?? this.#probe;
    const upstream = displayUpstream(this.upstream);
    if (exposedPath !== null && this.#exposedPath === null)
      this.log.warn(
        { upstream, path: exposedPath },
        'upstream serves the data folder with its secrets; serve another folder',
      );
    this.#exposedPath = exposedPath;
    if (this.#isRefused) {
      this.#spoken = false;
      return false;
    }
    if (problem === null || (isDoubtful && this.#heard)) {
      this.#works();
      return false;
    }
    if (this.#status.state !== 'wrong_protocol')
      this.log.warn({ upstream, reason: problem }, 'upstream speaks another protocol');
    this.#set('wrong_protocol', problem);
    if (!isDoubtful || !this.isDirect || this.needsRelay) return false;
    this.needsRelay = true;
    return true;
  }

  /** A client has got these bytes. A response outweighs a check: devices differ in which requests they answer. */
  heard(bytes: Buffer): void {
    this.#heardAt = this.now();
    if (this.#heard || this.#isRefused || (this.isHttp && !isResponse(bytes))) return;
    this.#heard = true;
    this.#works();
  }

  /**
   * The gateway has refused its response to a client, which got a 502.
   *
   * @param problem what is wrong with the response
   */
  answerRefused(problem: string): void {
    this.#refusedAt = this.now();
    this.#spoken = false;
    this.#heard = false;
    this.#set('wrong_protocol', `sent an invalid HTTP response: ${problem}`);
    if (this.now() - this.#refusalLoggedAt < REPEAT_MS) return;
    this.#refusalLoggedAt = this.now();
    const upstream = displayUpstream(this.upstream);
    this.log.warn({ upstream, reason: problem }, 'upstream sends invalid responses');
  }

  get #isRefused(): boolean {
    return this.now() - this.#refusedAt < REFUSED_MS;
  }

  answered(): void {
    if (this.#status.state === 'wrong_protocol') this.#checkedAt = this.now();
    else this.#works();
  }

  #works(): void {
    // It was reachable all the time when a response was refused.
    const wasDown = isDown(this.#status) && this.#refusedAt === Number.NEGATIVE_INFINITY;
    this.#refusedAt = Number.NEGATIVE_INFINITY;
    this.#set('answers', null);
    if (!wasDown) return;
    this.#times = 0;
    this.log.info({ upstream: displayUpstream(this.upstream) }, 'upstream reachable again');
  }

  /** @param forClient whether a client was waiting, rather than a check */
  failed(error: unknown, forClient: boolean): void {
    // It has no place for another connection.
    const isFull = isRefusal(error) && this.open > 0 && this.now() - this.#heardAt < BUSY_MS;
    if (isFull && this.#status.state === 'answers') return;
    const wasDown = isDown(this.#status);
    const reason = messageOf(error);
    this.#spoken = false;
    this.#heard = false;
    this.#set(stateAfter(error), reason);
    this.#refusedAt = Number.NEGATIVE_INFINITY;
    const upstream = displayUpstream(this.upstream);
    if (error instanceof AgentError && error.code === 'ERR_AGENT_UPSTREAM_NOT_ALLOWED' && !isRefusal(error)) {
      if (!this.#warned) this.log.warn({ upstream, reason }, 'upstream not allowed; connection rejected');
      this.#warned = true;
      return;
    }
    if (forClient) this.#times++;
    if (wasDown && (!forClient || this.now() - this.#loggedAt < REPEAT_MS)) return;
    const isFault = error instanceof UpstreamFault;
    this.log.warn(
      // A check has found it, and no client yet.
      { upstream, reason, ...(this.#times > 0 && { times: this.#times }) },
      isFault ? 'TLS with upstream failed' : 'upstream unreachable',
    );
    this.#times = 0;
    this.#loggedAt = this.now();
  }

  #set(state: UpstreamCondition, reason: string | null): void {
    const checkedAt = new Date();
    const since = this.#status.state === state ? this.#status.since : checkedAt;
    const wasReachable = this.#isReachable;
    this.#status = { state, since, checkedAt, reason };
    this.#checkedAt = this.now();
    const isReachable = this.#isReachable;
    if (isReachable !== wasReachable) for (const tell of this.#reachWatchers) tell(isReachable);
  }
}

function stateAfter(error: unknown): UpstreamCondition {
  if (error instanceof UpstreamFault) return 'tls_failed';
  return isRefusal(error) ? 'refused' : 'unreachable';
}

/** Whether bytes begin a response. A server that expects TLS answers 400, which says nothing for it. */
function isResponse(bytes: Buffer): boolean {
  const beginning = bytes.toString('latin1', 0, 'HTTP/1.1 200'.length);
  return beginningProblem(beginning) === null && !/^HTTP\/1\.\d 400/.test(beginning);
}

/** Whether the upstream's machine answered that nothing listens there. */
export function isRefusal(error: unknown): boolean {
  if (error instanceof AggregateError) return error.errors.some(isRefusal);
  if (error instanceof AgentError) return isRefusal(error.cause);
  return hasErrno(error, 'ECONNREFUSED') || hasErrno(error, 'ENOENT');
}

/** What of a tunnel decides how its upstream is checked. */
export interface CheckedUpstream {
  upstream: Upstream;
  /** Whether it can be asked by a request of HTTP/1.1. */
  isHttp: boolean;
  /** How the agent connects to it where it is https. */
  tls?: UpstreamTls;
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

  find(checked: CheckedUpstream): UpstreamHealth | null {
    return this.#held.get(keyOf(checked))?.health ?? null;
  }

  /** Remembers an upstream until {@link release} was called as often as this. */
  hold(checked: CheckedUpstream): UpstreamHealth {
    const key = keyOf(checked);
    const { upstream, isHttp, tls } = checked;
    const held = this.#held.get(key) ?? {
      health: new UpstreamHealth(upstream, isHttp, this.log, this.now, tls),
      holders: 0,
    };
    held.holders++;
    this.#held.set(key, held);
    return held.health;
  }

  release(checked: CheckedUpstream): void {
    const key = keyOf(checked);
    const held = this.#held.get(key);
    if (held && --held.holders === 0) this.#held.delete(key);
  }
}

function keyOf({ upstream, isHttp, tls = {} }: CheckedUpstream): string {
  return `${isHttp ? 'http' : 'bytes'} ${displayUpstream(upstream)} ${JSON.stringify(tls)}`;
}
