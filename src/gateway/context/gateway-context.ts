import type { Log } from '../../lib/log/log.ts';
import type { LoadBalancers } from '../../lib/network/load-balancers.ts';
import type { Clock } from '../../lib/time/clock.ts';
import type { DomainSettings } from '../endpoints/domain-names.ts';
import type { AddressSettings } from '../endpoints/endpoint-address.ts';
import type { EndpointRegistry } from '../endpoints/endpoint-registry.ts';
import type { EndpointDirectory } from '../endpoints/online-endpoint.ts';
import type { EdgeCounters } from '../metrics/edge-counters.ts';
import type { Activity } from '../store/events.ts';
import type { Store } from '../store/store.ts';
import type { DescriptorShares } from './descriptor-shares.ts';
import type { GatewayOptions } from './gateway-options.ts';

/** What nearly every part of a gateway needs. A part takes it, or some of it, and then what is its own. */
export interface GatewayContext {
  readonly options: GatewayOptions;
  readonly store: Store;
  readonly domains: DomainSettings;
  /** The edge sets those ports that it is free to choose. */
  readonly addresses: AddressSettings & { ports: Record<'http' | 'https', number> };
  /** What the file descriptors suffice for. */
  readonly shares: DescriptorShares;
  readonly balancers: LoadBalancers | null;
  /** What is online here. */
  readonly endpoints: EndpointRegistry;
  readonly counters: EdgeCounters;
  /** Looks whether other gateways have just written what is unknown here; limited in time, and in how often it does anything. */
  readonly catchUp: () => Promise<void>;
  /** Takes what happens, for those who have subscribed to it. */
  readonly activity: Activity;
  readonly clock: Clock;
  readonly log: Log;
  /** Adds what is done when the gateway stops, before what was added earlier. */
  readonly onStop: (stop: () => unknown) => void;
}

/** What the way of a client's connection needs of it. */
export interface EdgeContext extends Pick<GatewayContext, 'balancers' | 'counters' | 'activity' | 'log'> {
  readonly addresses?: Pick<GatewayContext['addresses'], 'ports'>;
  readonly options: Pick<
    GatewayOptions,
    | 'host'
    | 'httpPort'
    | 'httpsPort'
    | 'heldSockets'
    | 'ip'
    | 'acme'
    | 'edgeLimits'
    | 'onRefusedAnswer'
    | 'onUploadLost'
  >;
  readonly endpoints: EndpointDirectory;
}
