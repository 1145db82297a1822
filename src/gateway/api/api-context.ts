import type { PortRange } from '../../lib/network/port-range.ts';
import type { DestinationTest } from '../../management/resources/event.ts';
import type { ReadableResource, Ref } from '../../management/resources/resource.ts';
import type { PolicyPorts } from '../../traffic-policy/ports.ts';
import type { TimeProofs } from '../certificates/time-proofs.ts';
import type { OnlineCloudEndpoints } from '../cloud-endpoints/online-cloud-endpoints.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import type { DeviceSightings } from '../devices/device-sightings.ts';
import type { GatewayPlace } from '../devices/invite.ts';
import type { AddressSettings } from '../endpoints/endpoint-address.ts';
import type { LiveView } from '../endpoints/live-view.ts';
import type { TrafficHistory } from '../history/traffic-history.ts';
import type { PublicProbes } from '../probes/public-probes.ts';
import type { EventDestinationRow } from '../store/events.ts';

export interface ApiContext extends Pick<GatewayContext, 'store' | 'domains' | 'catchUp' | 'log'> {
  addresses: AddressSettings;
  live: LiveView;
  /** Null, or left out: the gateway keeps none. */
  history?: Pick<TrafficHistory, 'read' | 'readBriefly' | 'top' | 'devicesOf' | 'wasAway'> | null;
  /** Null, or left out: the gateway asks no endpoints as clients do. */
  probes?: Pick<PublicProbes, 'at' | 'counts'> | null;
  sightings: Pick<DeviceSightings, 'latest' | 'changed'>;
  links: Links;
  /** Called when a domain may need a certificate, or no longer needs one. */
  wakeCertificateRenewal: () => void;
  ipPolicies: PolicyPorts['ipPolicies'];
  /** Left out: policies are not compared with what is there. */
  policyKnowledge?: PolicyPorts['knowledge'];
  /** Of tcp endpoints; null: there are none. */
  tcpPorts: PortRange | null;
  cloudEndpoints: Pick<OnlineCloudEndpoints, 'settled' | 'isLeased'>;
  /** Resolvers, `ip` or `ip:port`, with which the gateway checks names; null: the system's. */
  dnsServers: readonly string[] | null;
  place: GatewayPlace;
  times: Pick<TimeProofs, 'prove'>;
  /** Called when there is a new bulk action; left out: nothing is done. */
  wakeBulkActions?: () => void;
  /** Sends a test message to a destination, and says what it answered. */
  testDestination: (destination: EventDestinationRow) => Promise<DestinationTest>;
}

export type Links = ReturnType<typeof createLinks>;
type Linked = Pick<ReadableResource, 'path'>;

/** @param baseUrl the origin at which clients reach the API, without a path: ngrok's Go client replaces paths */
export function createLinks(baseUrl: string) {
  const { origin } = new URL(baseUrl);
  const of = ({ path }: Linked, id: string) => `${origin}${path}/${id}`;
  const ref = (resource: Linked, id: string): Ref => ({ id, uri: of(resource, id) });
  return {
    to: (path: string) => origin + path,
    of,
    ref,
    refOrNull: (resource: Linked, id: string | null) => (id === null ? null : ref(resource, id)),
  };
}
