import { RpcError } from '../../agent-protocol/rpc-error.ts';
import { clientNetwork } from '../../lib/ip-address.ts';
import type { Log } from '../../lib/log.ts';
import { RecentMap } from '../../lib/recent-map.ts';
import type { TrafficCounters } from '../metrics/traffic-counters.ts';

const QUIET_MS = 60_000;
/** Whoever is more clients than that may fill the log, and finds the management API's open to it as well. */
const MAX_REMEMBERED = 10_000;

/** Whose request it was: an address alone as long as nobody has authenticated from there. */
export interface Refused {
  address: string;
  /** `ts_…` */
  session?: string;
  /** `cr_…` */
  credential?: string;
}

/**
 * Counts what agents are refused, and tells of it so that the device can be found: once a minute for each client and
 * code, for agents ask again and again.
 */
export class RefusalLog {
  readonly #told = new RecentMap<string, { at: number; times: number }>(MAX_REMEMBERED);

  constructor(
    private readonly counters: TrafficCounters,
    private readonly log: Log,
  ) {}

  session(who: Refused, error: unknown): void {
    this.counters.refused(this.counters.sessionsRefused, error);
    this.#tell('an agent was refused', who, error);
  }

  endpoint(who: Refused, error: unknown): void {
    this.counters.refused(this.counters.bindsRefused, error);
    this.#tell('an endpoint was refused', who, error);
  }

  /** What is no refusal is a bug, and told as one elsewhere. */
  #tell(what: string, who: Refused, error: unknown): void {
    if (!(error instanceof RpcError)) return;
    const key = `${who.credential ?? clientNetwork(who.address)} ${error.code}`;
    const now = performance.now();
    const entry = this.#told.get(key) ?? { at: Number.NEGATIVE_INFINITY, times: 0 };
    entry.times += 1;
    if (now - entry.at >= QUIET_MS) {
      this.log.warn({ ...who, code: error.code, reason: error.message, times: entry.times }, what);
      entry.at = now;
      entry.times = 0;
    }
    this.#told.set(key, entry);
  }
}
