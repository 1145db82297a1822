import type { Log } from '../../lib/log/log.ts';
import type { Refusal } from '../../management/resources/refusal.ts';
import type { DeviceSightings } from '../devices/device-sightings.ts';
import type { GatewayPlace } from '../devices/gateway-place.ts';
import type { DomainSettings } from '../endpoints/domain-names.ts';
import type { LiveView } from '../endpoints/live-view.ts';
import type { Store } from '../store/store.ts';
import type { Links } from './links.ts';

/** What the actions of all resources depend on. */
export interface ApiContext {
  store: Store;
  live: LiveView;
  sightings: Pick<DeviceSightings, 'latest'>;
  links: Links;
  log: Log;
  /** Called when a domain may need a certificate, or no longer needs one. */
  wakeCertificateRenewal: () => void;
  /** Why a traffic policy document (JSON or YAML) is refused, or null. */
  checkTrafficPolicy: (document: string) => Promise<Refusal | null>;
  domains: DomainSettings;
  /** Resolvers, `ip` or `ip:port`, with which the gateway checks names; null: the system's. */
  dnsServers: readonly string[] | null;
  /** How devices reach this gateway. */
  place: GatewayPlace;
}
