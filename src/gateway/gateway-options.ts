import type { Log } from '../lib/log/log.ts';
import type { Cidr } from '../lib/network/ip-address.ts';
import type { HeldSocket } from '../lib/network/listen.ts';
import type { LoadBalancers } from '../lib/network/load-balancers.ts';
import type { PortRange } from '../lib/network/port-range.ts';
import type { AcmeSettings, ChallengeDnsSettings } from '../settings/certificate-settings.ts';
import type { AgentLimits, EdgeLimits } from '../settings/gateway-settings.ts';
import type { BackupPlan } from '../settings/variable-kinds.ts';
import type { requestPublic } from '../traffic-policy/fetch-document.ts';
import type { PolicyKnowledge, PolicyPorts } from '../traffic-policy/ports.ts';
import type { ManagementApiSettings } from './api/management-api.ts';
import type { Challenges } from './certificates/challenges/challenges.ts';
import type { LocalCa } from './certificates/local-ca/local-ca.ts';
import type { Cluster } from './cluster/cluster.ts';
import type { Periods } from './cluster/nodes.ts';
import type { DescriptorShares } from './descriptor-shares.ts';
import type { AddressDatabasePaths, AddressDatabases } from './endpoints/address-databases.ts';
import type { DomainSettings } from './endpoints/domain-names.ts';
import type { AddressSettings } from './endpoints/endpoint-address.ts';
import type { EndpointRegistry } from './endpoints/endpoint-registry.ts';
import type { EdgeCounters } from './metrics/edge-counters.ts';
import type { Store } from './store/store.ts';

export interface GatewayOptions {
  /** The program's data folder; the gateway keeps its files in `gateway/` below it. */
  dataDir: string;
  /** Base domain of all endpoints, for example `localhost`. */
  domain: string;
  /** Address that all listeners bind to. */
  host: string;
  /** Ports; 0 for any free one. */
  httpPort: number;
  httpsPort: number;
  /** An additional port for agents only; null: agents use the HTTPS port under the name `connect.<domain>`. */
  sessionPort: number | null;
  /** Sockets that a service manager holds, for the ports above; omitted: none. */
  heldSockets?: readonly HeldSocket[];
  /** Ports for tcp endpoints; omitted: tcp endpoints are disabled. */
  tcpPorts?: PortRange | null;
  /** Encrypts private keys at rest, 32 bytes in base64; omitted: a key file in the data folder. */
  encryptionKey?: string | null;
  /** Of the shared PostgreSQL database; omitted: the gateway has a database of its own. */
  databaseUrl?: string | null;
  /** `host:port` at which other gateways reach the HTTPS port of this one; omitted: it serves the shared database alone. */
  nodeAddress?: string | null;
  /** How long the gateways of a shared database rely on one that says nothing; omitted: as documented. */
  periods?: Periods;
  /** Called when this gateway cannot serve the shared database any more, see `ServingEvents`: it must end. */
  onRemoved?: (reason: string | null) => void;
  /** Networks that are not public, but that policies may reach; omitted: none. */
  policyNetworks?: readonly Cidr[];
  /** Load balancers in front of the gateway; omitted: none. */
  balancers?: readonly Cidr[];
  /** Whether people who have signed in see the endpoints that let them in; omitted: no. */
  listApplications?: boolean;
  /** Days for which the audit log is kept; omitted: 90. */
  auditLogDays?: number;
  /** Whether the audit log has the policies that agents change; omitted: yes. */
  recordsPolicies?: boolean;
  /** Daily backups; omitted: none. */
  backups?: BackupPlan | null;
  /** The settings as lines of `.env`, for the backups; omitted: none. */
  settings?: string;
  /** Origin under which clients reach the management API; omitted: `https://api.<domain>` with the HTTPS port. */
  apiUrl?: string | null;
  /** The CA that certifies reserved domains; omitted: the gateway's own CA. */
  acme?: AcmeSettings | null;
  /** Whether certificates of the gateway's own names stay as they are, whatever `acme` says; omitted: no. */
  keepsOwnNames?: boolean;
  /** The DNS server that answers the challenges of wildcard domains; omitted: none. */
  challengeDns?: ChallengeDnsSettings | null;
  /** Limits on clients; omitted: generous ones. */
  edgeLimits?: EdgeLimits;
  /** Limits on agents; omitted: generous ones. */
  agentLimits?: AgentLimits;
  /** Overrides of the management API's generous limits. */
  limits?: Partial<Pick<ManagementApiSettings, 'rateLimit' | 'failedAttempts' | 'body'>>;
  /** Databases of the locations and networks of clients; omitted: policies know neither. */
  addressDatabases?: AddressDatabasePaths;
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
  counters: EdgeCounters;
  /** Why the shared database cannot be used; null: it can, or there is none. */
  databaseAway: () => string | null;
  challenges: Challenges;
  ipPolicies: PolicyPorts['ipPolicies'];
  policyKnowledge: PolicyKnowledge;
  log: Log;
  /** Adds what is done when the gateway stops, before what was added earlier. */
  onStop: (stop: () => Promise<void>) => void;
}
