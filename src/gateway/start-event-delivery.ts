import { join } from 'node:path';
import { InspectingAgent } from '../lib/network/client-handshake.ts';
import { systemClock } from '../lib/time/clock.ts';
import { publicAddress, publicRequest } from '../traffic-policy/public-request.ts';
import { EventDelivery } from './events/event-delivery.ts';
import type { GatewayStart } from './gateway-options.ts';

/** How long an idle connection to a receiver of events is kept: shorter than servers keep theirs. */
const EVENT_IDLE_MS = 4_000;

/** Of several gateways, one sends events. What a copy of the database has sent, it would forget. */
export function startEventDelivery({ options, store, cluster, losses, log, onStop }: GatewayStart): void {
  if (store.database.unwritable !== null) return;
  // A handshake for each event would take most of its time.
  const agent = new InspectingAgent({ owner: 'events' }, { keepAlive: true, timeout: EVENT_IDLE_MS });
  const request: typeof publicRequest = (outbound, signal) =>
    publicRequest(outbound, signal, options.policyNetworks, agent);
  const resolve: typeof publicAddress = (host) => publicAddress(host, options.policyNetworks);
  const folder = join(options.dataDir, 'gateway', 'events');
  const isSender = () => (cluster?.primary.isSelf ?? true) && losses?.isOpen !== true;
  const delivery = new EventDelivery({ store, folder, request, resolve, isSender, clock: systemClock, log });
  if (losses) losses.acknowledged = () => delivery.acknowledged;
  const start = () => {
    delivery.start();
    return async () => {
      await delivery.stop();
      agent.destroy();
    };
  };
  if (cluster === null) onStop(start());
  else cluster.primary.whileSelf(start);
}
