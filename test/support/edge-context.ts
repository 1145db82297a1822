import type { EdgeContext } from '../../src/gateway/context/gateway-context.ts';
import { EdgeCounters } from '../../src/gateway/metrics/edge-counters.ts';
import type { Activity } from '../../src/gateway/store/events.ts';
import { Directory } from './edge.ts';
import { silentLog } from './silent-log.ts';

/** Nobody has subscribed to events. */
export const NO_ACTIVITY: Activity = { note() {}, sample() {} };

/** What an edge on its own needs of a gateway, on free loopback ports. */
export function edgeContext(more: Partial<EdgeContext> = {}): EdgeContext {
  return {
    options: { host: '127.0.0.1', httpPort: 0, httpsPort: 0 },
    endpoints: new Directory(),
    balancers: null,
    counters: new EdgeCounters(),
    activity: NO_ACTIVITY,
    log: silentLog,
    ...more,
  };
}
