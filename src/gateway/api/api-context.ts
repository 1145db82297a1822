import type { Log } from '../../lib/log/log.ts';
import type { Ref } from '../../management/resources/members.ts';
import type { ReadableResource } from '../../management/resources/resource.ts';
import type { PolicyPorts } from '../../traffic-policy/ports.ts';
import type { DeviceSightings } from '../devices/device-sightings.ts';
import type { GatewayPlace } from '../devices/gateway-place.ts';
import type { DomainSettings } from '../endpoints/domain-names.ts';
import type { LiveView } from '../endpoints/live-view.ts';
import type { Store } from '../store/store.ts';

export interface ApiContext {
  store: Store;
  live: LiveView;
  sightings: Pick<DeviceSightings, 'latest'>;
  links: Links;
  log: Log;
  /** Called when a domain may need a certificate, or no longer needs one. */
  wakeCertificateRenewal: () => void;
  /** Looks up the IP policies that traffic policies refer to. */
  ipPolicies: PolicyPorts['ipPolicies'];
  domains: DomainSettings;
  /** Resolvers, `ip` or `ip:port`, with which the gateway checks names; null: the system's. */
  dnsServers: readonly string[] | null;
  place: GatewayPlace;
}

export interface Links {
  to(path: string): string;
  of(resource: Pick<ReadableResource, 'path'>, id: string): string;
  ref(resource: Pick<ReadableResource, 'path'>, id: string): Ref;
  refOrNull(resource: Pick<ReadableResource, 'path'>, id: string | null): Ref | null;
}

/** @param baseUrl the origin at which clients reach the API, without a path: ngrok's Go client replaces paths */
export function createLinks(baseUrl: string): Links {
  const { origin } = new URL(baseUrl);
  const links: Links = {
    to: (path) => origin + path,
    of: ({ path }, id) => `${origin}${path}/${id}`,
    ref: (resource, id) => ({ id, uri: links.of(resource, id) }),
    refOrNull: (resource, id) => (id === null ? null : links.ref(resource, id)),
  };
  return links;
}
