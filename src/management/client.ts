import { type CallOptions, Collection, EdgeModule, ReadableCollection } from './collection.ts';
import { OPERATIONS } from './operations.ts';
import type { ApiKey, ApiKeyCreate, ApiKeyUpdate } from './resources/api-key.ts';
import type { BotUser, BotUserCreate, BotUserUpdate } from './resources/bot-user.ts';
import type {
  CertificateAuthority,
  CertificateAuthorityCreate,
  CertificateAuthorityUpdate,
} from './resources/certificate-authority.ts';
import type { Credential, CredentialCreate, CredentialUpdate } from './resources/credential.ts';
import type { Endpoint } from './resources/endpoint.ts';
import type {
  EndpointConfiguration,
  EndpointConfigurationCreate,
  EndpointConfigurationUpdate,
} from './resources/endpoint-configuration.ts';
import type {
  HttpResponseBackend,
  HttpResponseBackendCreate,
  HttpResponseBackendUpdate,
} from './resources/http-response-backend.ts';
import type { IpPolicy, IpPolicyCreate, IpPolicyUpdate } from './resources/ip-policy.ts';
import type { IpPolicyRule, IpPolicyRuleCreate, IpPolicyRuleUpdate } from './resources/ip-policy-rule.ts';
import type { ReservedDomain, ReservedDomainCreate, ReservedDomainUpdate } from './resources/reserved-domain.ts';
import type { TlsCertificate, TlsCertificateCreate, TlsCertificateUpdate } from './resources/tls-certificate.ts';
import type {
  BackendModule,
  BackendModuleBody,
  IpRestrictionModule,
  IpRestrictionModuleBody,
  MutualTlsModule,
  MutualTlsModuleBody,
  TlsEdge,
  TlsEdgeCreate,
  TlsEdgeUpdate,
  TlsTerminationModule,
  TlsTerminationModuleBody,
  TrafficPolicyModule,
  TrafficPolicyModuleBody,
} from './resources/tls-edge.ts';
import type { Tunnel } from './resources/tunnel.ts';
import type {
  TunnelGroupBackend,
  TunnelGroupBackendCreate,
  TunnelGroupBackendUpdate,
} from './resources/tunnel-group-backend.ts';
import type { TunnelSession } from './resources/tunnel-session.ts';
import { type ManagementClientOptions, Transport } from './transport.ts';

/**
 * A typed client of the management API, for a gateway of one's own and for ngrok's cloud alike.
 *
 * Every method takes a `signal` last and rejects with a ManagementError. Reading calls are repeated when
 * the network or the service fails; changing ones only when the service said that it did not take them.
 *
 * @example
 * const client = new ManagementClient({ baseUrl: 'https://api.gateway.example.com', apiKey });
 * const bot = await client.botUsers.create({ name: 'site A' });
 * for await (const domain of client.reservedDomains.all()) console.log(domain.domain);
 */
export class ManagementClient {
  /** Hostnames held for the account. */
  readonly reservedDomains: ReservedDomains;
  /** Hostports and what happens to their TLS traffic. */
  readonly tlsEdges: TlsEdges;
  /** Identities that own authtokens and belong to no person. */
  readonly botUsers: Collection<BotUserCreate, BotUserUpdate, BotUser>;
  /** The newer name of bot users: the same identities. */
  readonly serviceUsers: Collection<BotUserCreate, BotUserUpdate, BotUser>;
  /** Backends that answer every request with one fixed response. */
  readonly httpResponseBackends: Collection<HttpResponseBackendCreate, HttpResponseBackendUpdate, HttpResponseBackend>;
  /** Backends of all the tunnels that are online with certain labels. */
  readonly tunnelGroupBackends: Collection<TunnelGroupBackendCreate, TunnelGroupBackendUpdate, TunnelGroupBackend>;
  /** Named sets of rules on source addresses. */
  readonly ipPolicies: Collection<IpPolicyCreate, IpPolicyUpdate, IpPolicy>;
  /** The rules of all IP policies. */
  readonly ipPolicyRules: Collection<IpPolicyRuleCreate, IpPolicyRuleUpdate, IpPolicyRule>;
  /** CAs whose client certificates edges accept. */
  readonly certificateAuthorities: Collection<
    CertificateAuthorityCreate,
    CertificateAuthorityUpdate,
    CertificateAuthority
  >;
  /** Certificates, uploaded or issued; their private keys are never shown. */
  readonly tlsCertificates: Collection<TlsCertificateCreate, TlsCertificateUpdate, TlsCertificate>;
  /** Authtokens of agents; `token` is in the answer to `create` only. */
  readonly credentials: Collection<CredentialCreate, CredentialUpdate, Credential>;
  /** Keys for this API; `token` is in the answer to `create` only. */
  readonly apiKeys: Collection<ApiKeyCreate, ApiKeyUpdate, ApiKey>;
  /** What domains refer to for HTTP and HTTPS. */
  readonly endpointConfigurations: Collection<
    EndpointConfigurationCreate,
    EndpointConfigurationUpdate,
    EndpointConfiguration
  >;
  /** Public URLs that are online. */
  readonly endpoints: ReadableCollection<Endpoint>;
  /** What agents have bound. */
  readonly tunnels: ReadableCollection<Tunnel>;
  /** Agents that are connected. */
  readonly tunnelSessions: TunnelSessions;

  /** @throws {TypeError} when an option cannot be used */
  constructor(options: ManagementClientOptions) {
    const transport = new Transport(options);
    this.reservedDomains = new ReservedDomains(transport, OPERATIONS.reservedDomains);
    this.tlsEdges = new TlsEdges(transport, OPERATIONS.tlsEdges);
    this.botUsers = new Collection(transport, OPERATIONS.botUsers);
    this.serviceUsers = new Collection(transport, OPERATIONS.serviceUsers);
    this.httpResponseBackends = new Collection(transport, OPERATIONS.httpResponseBackends);
    this.tunnelGroupBackends = new Collection(transport, OPERATIONS.tunnelGroupBackends);
    this.ipPolicies = new Collection(transport, OPERATIONS.ipPolicies);
    this.ipPolicyRules = new Collection(transport, OPERATIONS.ipPolicyRules);
    this.certificateAuthorities = new Collection(transport, OPERATIONS.certificateAuthorities);
    this.tlsCertificates = new Collection(transport, OPERATIONS.tlsCertificates);
    this.credentials = new Collection(transport, OPERATIONS.credentials);
    this.apiKeys = new Collection(transport, OPERATIONS.apiKeys);
    this.endpointConfigurations = new Collection(transport, OPERATIONS.endpointConfigurations);
    this.endpoints = new ReadableCollection(transport, OPERATIONS.endpoints);
    this.tunnels = new ReadableCollection(transport, OPERATIONS.tunnels);
    this.tunnelSessions = new TunnelSessions(transport, OPERATIONS.tunnelSessions);
  }
}

/** Hostnames held for the account. */
export class ReservedDomains extends Collection<ReservedDomainCreate, ReservedDomainUpdate, ReservedDomain> {
  /** Ends automatic certificates for the domain and takes the automatic one off it. */
  async detachCertificateManagementPolicy(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.transport.send(OPERATIONS.reservedDomains.detachCertificateManagementPolicy, { id, signal });
  }

  /** Takes an uploaded certificate off the domain; an automatic one goes with its policy. */
  async detachCertificate(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.transport.send(OPERATIONS.reservedDomains.detachCertificate, { id, signal });
  }

  /** Unlinks the endpoint configuration for HTTP; there may be none. */
  async detachHttpEndpointConfiguration(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.transport.send(OPERATIONS.reservedDomains.detachHttpEndpointConfiguration, { id, signal });
  }

  /** Unlinks the endpoint configuration for HTTPS; there may be none. */
  async detachHttpsEndpointConfiguration(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.transport.send(OPERATIONS.reservedDomains.detachHttpsEndpointConfiguration, { id, signal });
  }
}

/** Hostports and what happens to their TLS traffic, with one member for each module. */
export class TlsEdges extends Collection<TlsEdgeCreate, TlsEdgeUpdate, TlsEdge> {
  /** Where the traffic goes. */
  readonly backend = new EdgeModule<BackendModuleBody, BackendModule>(this.transport, OPERATIONS.tlsEdgeBackend);
  /** Which source addresses are let in. */
  readonly ipRestriction = new EdgeModule<IpRestrictionModuleBody, IpRestrictionModule>(
    this.transport,
    OPERATIONS.tlsEdgeIpRestriction,
  );
  /** Which client certificates are demanded. */
  readonly mutualTls = new EdgeModule<MutualTlsModuleBody, MutualTlsModule>(
    this.transport,
    OPERATIONS.tlsEdgeMutualTls,
  );
  /** Who ends TLS, and from which version on. */
  readonly tlsTermination = new EdgeModule<TlsTerminationModuleBody, TlsTerminationModule>(
    this.transport,
    OPERATIONS.tlsEdgeTlsTermination,
  );
  /** The traffic policy that is applied, as JSON or YAML. */
  readonly trafficPolicy = new EdgeModule<TrafficPolicyModuleBody, TrafficPolicyModule>(
    this.transport,
    OPERATIONS.tlsEdgeTrafficPolicy,
  );
}

/** Connections of agents. */
export class TunnelSessions extends ReadableCollection<TunnelSession> {
  /** Asks the agent to restart itself. */
  async restart(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.transport.send(OPERATIONS.tunnelSessions.restart, { id, signal });
  }

  /** Asks the agent to stop. */
  async stop(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.transport.send(OPERATIONS.tunnelSessions.stop, { id, signal });
  }

  /** Asks the agent to update itself. */
  async update(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.transport.send(OPERATIONS.tunnelSessions.update, { id, signal });
  }
}
