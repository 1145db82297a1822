import type { Log } from '../lib/log/log.ts';
import type { HeldSocket } from '../lib/network/listen.ts';
import type { LoadBalancers } from '../lib/network/load-balancers.ts';
import type { ParsedSettings } from '../settings/gateway-settings.ts';
import type { requestPublic } from '../traffic-policy/fetch-document.ts';
import type { PolicyKnowledge, PolicyPorts } from '../traffic-policy/ports.ts';
import type { ManagementApiSettings } from './api/management-api.ts';
import type { Challenges } from './certificates/challenges/challenges.ts';
import type { LocalCa } from './certificates/local-ca/local-ca.ts';
import type { Cluster } from './cluster/cluster.ts';
import type { LossReports } from './cluster/loss-reports.ts';
import type { Periods } from './cluster/nodes.ts';
import type { DescriptorShares } from './descriptor-shares.ts';
import type { AddressDatabases } from './endpoints/address-databases.ts';
import type { DomainSettings } from './endpoints/domain-names.ts';
import type { AddressSettings } from './endpoints/endpoint-address.ts';
import type { EndpointRegistry } from './endpoints/endpoint-registry.ts';
import type { EdgeCounters } from './metrics/edge-counters.ts';
import type { SharedWrites } from './store/shared/shared-writes.ts';
import type { Store } from './store/store.ts';

type Needed = 'dataDir' | 'domain' | 'host' | 'httpPort' | 'httpsPort' | 'sessionPort';

/** What is left out has the default that the settings document, or is off. */
export interface GatewayOptions
  extends Pick<ParsedSettings, Needed>,
    Partial<Omit<ParsedSettings, Needed | 'log' | 'limits'>> {
  /** Sockets that a service manager holds, for the ports above; omitted: none. */
  heldSockets?: readonly HeldSocket[];
  /** How long the gateways of a shared database rely on one that says nothing; omitted: as documented. */
  periods?: Periods;
  /** Called when this gateway cannot serve the shared database any more, see `ServingEvents`: it must end. */
  onRemoved?: (reason: string | null) => void;
  /** Whether the audit log has the policies that agents change; omitted: yes. */
  recordsPolicies?: boolean;
  /** The settings as lines of `.env`, for the backups; omitted: none. */
  settings?: string;
  /** Overrides of the management API's generous limits. */
  limits?: Partial<Pick<ManagementApiSettings, 'rateLimit' | 'failedAttempts' | 'body'>>;
  /** Fetches the key sets and certificates that traffic policies name; omitted: from the public internet. */
  fetchForPolicies?: (url: string, maxBytes: number) => Promise<Buffer>;
  /** Reaches the identity providers that traffic policies name; omitted: those on the public internet. */
  requestForSignIn?: typeof requestPublic;
  /** Called with what is wrong with a response of an upstream that was refused; omitted: agents are told that support it. */
  onRefusedAnswer?: ((forwardsTo: string, reason: string) => void) | undefined;
  log: Log;
}

export interface GatewayStart {
  options: GatewayOptions;
  ca: LocalCa;
  store: Store;
  domains: DomainSettings;
  /** The edge sets those ports that it is free to choose. */
  addresses: AddressSettings & { ports: Record<'http' | 'https', number> };
  shares: DescriptorShares;
  balancers: LoadBalancers | null;
  addressDatabases: AddressDatabases | null;
  endpoints: EndpointRegistry;
  /** Null: this gateway is the only one. */
  cluster: Cluster | null;
  /** Null: there is no shared database. */
  losses: LossReports | null;
  counters: EdgeCounters;
  /** Null: this gateway has a database of its own. */
  shared: Pick<SharedWrites, 'away' | 'detour' | 'staleSeconds'> | null;
  challenges: Challenges;
  ipPolicies: PolicyPorts['ipPolicies'];
  policyKnowledge: PolicyKnowledge;
  log: Log;
  /** Adds what is done when the gateway stops, before what was added earlier. */
  onStop: (stop: () => Promise<void>) => void;
}
