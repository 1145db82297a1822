import type { TailLine } from '../../../lib/log/log-tail.ts';
import type { TunnelDetail } from '../present.ts';
import type { StatusReport } from '../status-report.ts';

/** A tunnel on the page; unlike its URL, its id never changes. */
export interface FeedTunnel extends TunnelDetail {
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

/** Each following event, `change`: only what is new. */
export interface FeedChange {
  readonly status?: StatusReport;
  /** New and changed tunnels. */
  readonly tunnels?: readonly FeedTunnel[];
  /** Ids of deleted tunnels. */
  readonly removed?: readonly string[];
  readonly log?: readonly TailLine[];
}
