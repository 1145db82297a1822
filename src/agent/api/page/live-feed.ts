import type { Response } from 'express';
import { EventStreams, eventText, MAX_STREAMS, SILENCE_MS } from '../../../lib/http/event-streams.ts';
import type { LogTail } from '../../../lib/log/log-tail.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import { type AccessWay, accessOf } from '../../../traffic-policy/access.ts';
import { PolicyInput, PolicyNotApplicable, toTrafficPolicy } from '../../../traffic-policy/document.ts';
import { AgentError, RETRY_AFTER_S } from '../../errors/agent-error.ts';
import type { Tunnel } from '../../tunnels/tunnel.ts';
import type { UpstreamChecks } from '../../upstreams/upstream-monitor.ts';
import { admissionCheck } from '../bearer-auth.ts';
import { type HealthSource, presentStatus } from '../status-report.ts';
import { presentDetail } from '../tunnel-actions.ts';
import type { FeedChange, FeedSnapshot, FeedTunnel, FeedTunnelChange } from './page-routes.ts';

const INTERVAL_MS = 1_000;
/** Somebody may look from afar, over a link whose data is expensive: so many of them are one. */
const METERED_TICKS = 10;

type Source = Omit<HealthSource, 'metrics'> & {
  name: string;
  isMetered?: (() => boolean) | undefined;
  clock: Clock;
  logTail: LogTail | null;
  monitor: UpstreamChecks;
};

/** Sends open pages what changes, as server-sent events. Without an open page, nothing runs. */
export class LiveFeed {
  readonly #pages: EventStreams;
  #sent = { status: '', tunnels: new Map<string, FeedTunnel>(), line: 0 };
  #lastEvent = 0;
  #ticks = 0;
  /** By policy: looking at one again each second would cost more than all else. */
  readonly #access = new WeakMap<object, readonly AccessWay[]>();

  constructor(private readonly source: Source) {
    this.#pages = new EventStreams(source.clock, INTERVAL_MS, () => this.#tick(), true);
  }

  #tick(): void {
    this.#ticks += 1;
    if (!this.source.isMetered?.() || this.#ticks % METERED_TICKS === 0) this.#update();
  }

  open(res: Response): void {
    if (this.#pages.isFull) {
      throw new AgentError('ERR_AGENT_BUSY', `too many open pages: at most ${MAX_STREAMS}; close one`, {
        retryAfter: RETRY_AFTER_S,
      });
    }
    // The others first, so that all have the same state from here on.
    this.#update();
    this.#pages.add(res, null, eventText('snapshot', this.#snapshot()), admissionCheck(res));
    // What it finds comes as a change.
    void this.source.monitor.refresh();
  }

  /** Ends all feeds, which would otherwise delay the stop of the server. */
  stop(): void {
    this.#pages.stop();
  }

  #snapshot(): FeedSnapshot {
    return {
      name: this.source.name,
      status: presentStatus(this.source),
      tunnels: this.source.tunnels.list().map((view) => this.#present(view)),
      log: this.source.logTail?.lines ?? [],
    };
  }

  #present(view: Parameters<typeof presentDetail>[0]): FeedTunnel {
    const { policy: _, upstream, ...detail } = presentDetail(view, this.source.tunnels);
    const { checked_at: __, ...steady } = upstream;
    const { id, policy } = view.tunnel;
    return { id, own_policy: policy !== null, access: this.#accessOf(view.tunnel), ...detail, upstream: steady };
  }

  #accessOf(tunnel: Tunnel): readonly AccessWay[] {
    const policy = this.source.tunnels.policies.on(tunnel);
    const known = this.#access.get(policy);
    if (known !== undefined) return known;
    const access = accessOfPolicy(policy, tunnel.protocol);
    this.#access.set(policy, access);
    return access;
  }

  #update(): void {
    const change = this.#changes();
    const now = this.source.clock.now();
    const hasNews = Object.keys(change).length > 0;
    if (!hasNews && now - this.#lastEvent < SILENCE_MS) return;
    this.#lastEvent = now;
    const text = hasNews ? eventText('change', change) : eventText('alive', {});
    for (const [page] of this.#pages) page.send(text);
  }

  #changes(): FeedChange {
    const { status, tunnels, log } = this.#snapshot();
    const { uptime_seconds: _, ...steady } = status;
    const before = this.#sent;
    const now = new Map(tunnels.map((tunnel) => [tunnel.id, tunnel]));
    this.#sent = { status: JSON.stringify(steady), tunnels: now, line: log.at(-1)?.number ?? 0 };
    const changed = tunnels.flatMap((tunnel) => changeOf(before.tunnels.get(tunnel.id), tunnel));
    const removed = [...before.tunnels.keys()].filter((id) => !now.has(id));
    const lines = log.filter(({ number }) => number > before.line);
    return {
      ...(before.status !== this.#sent.status && { status }),
      ...(changed.length > 0 && { tunnels: changed }),
      ...(removed.length > 0 && { removed }),
      ...(lines.length > 0 && { log: lines }),
    };
  }
}

/** Of a stored policy that this version does not accept, nobody knows. */
function accessOfPolicy(policy: object, protocol: string): readonly AccessWay[] {
  const parsed = PolicyInput.safeParse(policy);
  if (!parsed.success) return ['policy'];
  try {
    return accessOf(toTrafficPolicy(parsed.data, protocol === 'tcp' || protocol === 'tls' ? protocol : 'http'));
  } catch (error) {
    if (error instanceof PolicyNotApplicable) return ['policy'];
    throw error;
  }
}

function changeOf(before: FeedTunnel | undefined, now: FeedTunnel): FeedTunnelChange[] {
  if (before === undefined) return [now];
  // Options that were reset are no longer there.
  const changed = (Object.keys({ ...before, ...now }) as (keyof FeedTunnel)[]).filter(
    (name) => now[name] !== before[name] && JSON.stringify(now[name]) !== JSON.stringify(before[name]),
  );
  return changed.length === 0
    ? []
    : [{ id: now.id, ...Object.fromEntries(changed.map((name) => [name, now[name] ?? null])) }];
}
