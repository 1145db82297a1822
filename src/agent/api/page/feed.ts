import type { TailLine } from '../../../lib/log/log-tail.ts';
import type { TunnelDetail } from '../present.ts';
import type { StatusReport } from '../status-report.ts';

/**
 * A tunnel on the page; unlike its URL, its id never changes. Without its policy, which may contain secrets: events are
 * compressed together with text that others choose. And without the time of checks, which alone is no news.
 */
export interface FeedTunnel extends Omit<TunnelDetail, 'policy' | 'upstream'> {
  readonly upstream: Omit<TunnelDetail['upstream'], 'checked_at'>;
  readonly id: string;
  /** Whether it has a policy of its own rather than the default policies. */
  readonly own_policy: boolean;
}

/** The first event of the live feed, `snapshot`. */
export interface FeedSnapshot {
  /** What the device is called: its name at the site, else its hostname. */
  readonly name: string;
  readonly status: StatusReport;
  readonly tunnels: readonly FeedTunnel[];
  readonly log: readonly TailLine[];
}

/** A new tunnel, or of a known one what has changed. */
export type TunnelChange = Pick<FeedTunnel, 'id'> & Partial<FeedTunnel>;

/** Each following event, `change`: only what is new. */
export interface FeedChange {
  readonly status?: StatusReport;
  readonly tunnels?: readonly TunnelChange[];
  /** Ids of deleted tunnels. */
  readonly removed?: readonly string[];
  readonly log?: readonly TailLine[];
}
