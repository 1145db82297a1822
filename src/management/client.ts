import {
  allPages,
  type CallOptions,
  Collection,
  call,
  DeletableCollection,
  EdgeModule,
  type ListOptions,
  listPage,
  type Page,
  ReadableCollection,
} from './collection.ts';
import { OPERATIONS } from './operations.ts';
import type { ApplicationSession, ApplicationUser } from './resources/application-session.ts';
import type { AuditEvent, AuditFilters } from './resources/audit-event.ts';
import type {
  HttpResponseBackend,
  HttpResponseBackendCreate,
  HttpResponseBackendUpdate,
  TunnelGroupBackend,
  TunnelGroupBackendCreate,
  TunnelGroupBackendUpdate,
} from './resources/backend.ts';
import type { BotUser, BotUserCreate, BotUserUpdate } from './resources/bot-user.ts';
import type {
  CertificateAuthority,
  CertificateAuthorityCreate,
  CertificateAuthorityUpdate,
  TlsCertificate,
  TlsCertificateCreate,
  TlsCertificateUpdate,
} from './resources/certificate.ts';
import type {
  ApiKey,
  ApiKeyCreate,
  ApiKeyUpdate,
  Credential,
  CredentialCreate,
  CredentialUpdate,
} from './resources/credential.ts';
import type { Device, DeviceUpdate } from './resources/device.ts';
import type { Endpoint, EndpointCreate, EndpointUpdate } from './resources/endpoint.ts';
import type { EnrolmentKey, EnrolmentKeyCreate, EnrolmentKeyUpdate } from './resources/enrolment.ts';
import type {
  EventDestination,
  EventDestinationCreate,
  EventDestinationUpdate,
  EventSource,
  EventSubscription,
  EventSubscriptionCreate,
  EventSubscriptionUpdate,
  RefusedEvent,
  RefusedEventChoice,
} from './resources/event.ts';
import type {
  IpPolicy,
  IpPolicyCreate,
  IpPolicyRule,
  IpPolicyRuleCreate,
  IpPolicyRuleUpdate,
  IpPolicyUpdate,
  IpRestriction,
  IpRestrictionCreate,
  IpRestrictionUpdate,
} from './resources/ip-policy.ts';
import type { Person, PersonCreate, PersonLink, PersonUpdate } from './resources/person.ts';
import type { ReservedAddr, ReservedAddrCreate, ReservedAddrUpdate } from './resources/reserved-addr.ts';
import type {
  DnsCheck,
  EndpointConfiguration,
  EndpointConfigurationCreate,
  EndpointConfigurationUpdate,
  ReservedDomain,
  ReservedDomainCreate,
  ReservedDomainUpdate,
} from './resources/reserved-domain.ts';
import type { ShareLink, ShareLinkCreate } from './resources/share-link.ts';
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
import type { Tunnel, TunnelSession } from './resources/tunnel.ts';
import type { Secret, SecretCreate, SecretUpdate, Vault, VaultCreate, VaultUpdate } from './resources/vault.ts';
import { type ManagementClientOptions, showAs, Transport } from './transport.ts';

/**
 * A typed client of the management API of a gateway or of ngrok's cloud.
 *
 * Every method accepts a `signal` and rejects with a ManagementError. Reads are retried after network and server errors,
 * writes only when the API reported that it did not process them.
 *
 * @example
 * const client = new ManagementClient({ baseUrl: 'https://api.gateway.example.com', apiKey });
 * const bot = await client.botUsers.create({ name: 'site A' });
 * for await (const domain of client.reservedDomains.all()) console.log(domain.domain);
 */
export class ManagementClient {
  /** Hostnames held for the account. */
  readonly reservedDomains: ReservedDomains;
  /** TLS edges: hostports with modules for their traffic. */
  readonly tlsEdges: TlsEdges;
  /** Identities of devices that own authtokens. */
  readonly botUsers: Collection<BotUserCreate, BotUserUpdate, BotUser>;
  /** The newer name of bot users, with the same identities. */
  readonly serviceUsers: Collection<BotUserCreate, BotUserUpdate, BotUser>;
  /** Backends that send a fixed response. */
  readonly httpResponseBackends: Collection<HttpResponseBackendCreate, HttpResponseBackendUpdate, HttpResponseBackend>;
  /** Backends that forward to the online tunnels with specific labels. */
  readonly tunnelGroupBackends: Collection<TunnelGroupBackendCreate, TunnelGroupBackendUpdate, TunnelGroupBackend>;
  /** Named sets of rules on source addresses. */
  readonly ipPolicies: Collection<IpPolicyCreate, IpPolicyUpdate, IpPolicy>;
  /** The rules of all IP policies. */
  readonly ipPolicyRules: Collection<IpPolicyRuleCreate, IpPolicyRuleUpdate, IpPolicyRule>;
  /** Which addresses may use the API, the dashboard, endpoints, or connect agents. */
  readonly ipRestrictions: Collection<IpRestrictionCreate, IpRestrictionUpdate, IpRestriction>;
  /** CAs whose client certificates edges accept. */
  readonly certificateAuthorities: Collection<
    CertificateAuthorityCreate,
    CertificateAuthorityUpdate,
    CertificateAuthority
  >;
  /** Certificates, uploaded or issued; their private keys are never shown. */
  readonly tlsCertificates: Collection<TlsCertificateCreate, TlsCertificateUpdate, TlsCertificate>;
  /** Authtokens of agents; only the response to `create` contains `token`. */
  readonly credentials: Collection<CredentialCreate, CredentialUpdate, Credential>;
  /** Keys for this API; only the response to `create` contains `token`. */
  readonly apiKeys: Collection<ApiKeyCreate, ApiKeyUpdate, ApiKey>;
  /** Configurations that domains refer to for HTTP and HTTPS. */
  readonly endpointConfigurations: Collection<
    EndpointConfigurationCreate,
    EndpointConfigurationUpdate,
    EndpointConfiguration
  >;
  /** Keys with which devices join a site; only the response to `create` contains `code`. */
  readonly enrolmentKeys: Collection<EnrolmentKeyCreate, EnrolmentKeyUpdate, EnrolmentKey>;
  /** Devices that have joined. */
  readonly devices: Devices;
  /** Sets of secrets for policies. */
  readonly vaults: Vaults;
  /** The secrets of all vaults; their values are never returned. */
  readonly secrets: Collection<SecretCreate, SecretUpdate, Secret>;
  /** Who can sign in at tunnels without an identity provider. ngrok's API does not have them. */
  readonly people: People;
  /** TCP addresses that agents get only by asking for them. */
  readonly reservedAddrs: Collection<ReservedAddrCreate, ReservedAddrUpdate, ReservedAddr>;
  /** Links that let browsers in at an endpoint; only the response to `create` contains `link`. */
  readonly shareLinks: ShareLinks;
  /** Who has changed what. */
  readonly auditEvents: AuditEvents;
  /** People who have signed in at endpoints; `delete` ends all of their sessions. */
  readonly applicationUsers: DeletableCollection<ApplicationUser>;
  /** Their sessions; `delete` ends one. */
  readonly applicationSessions: DeletableCollection<ApplicationSession>;
  /** Where events are sent. */
  readonly eventDestinations: EventDestinations;
  /** Which events are sent there. */
  readonly eventSubscriptions: EventSubscriptions;
  /** URLs that are online. Only cloud endpoints can be created, changed and deleted here. */
  readonly endpoints: Collection<EndpointCreate, EndpointUpdate, Endpoint>;
  /** Tunnels of connected agents. */
  readonly tunnels: ReadableCollection<Tunnel>;
  /** Sessions of connected agents. */
  readonly tunnelSessions: TunnelSessions;

  /** @throws {TypeError} when an option is invalid */
  constructor(options: ManagementClientOptions) {
    // Programs in JavaScript may pass none.
    const transport = new Transport(options ?? {});
    showAs(this, `ManagementClient ${transport.baseUrl}`);
    this.reservedDomains = new ReservedDomains(transport, OPERATIONS.reservedDomains);
    this.tlsEdges = new TlsEdges(transport, OPERATIONS.tlsEdges);
    this.botUsers = new Collection(transport, OPERATIONS.botUsers);
    this.serviceUsers = new Collection(transport, OPERATIONS.serviceUsers);
    this.httpResponseBackends = new Collection(transport, OPERATIONS.httpResponseBackends);
    this.tunnelGroupBackends = new Collection(transport, OPERATIONS.tunnelGroupBackends);
    this.ipPolicies = new Collection(transport, OPERATIONS.ipPolicies);
    this.ipPolicyRules = new Collection(transport, OPERATIONS.ipPolicyRules);
    this.ipRestrictions = new Collection(transport, OPERATIONS.ipRestrictions);
    this.certificateAuthorities = new Collection(transport, OPERATIONS.certificateAuthorities);
    this.tlsCertificates = new Collection(transport, OPERATIONS.tlsCertificates);
    this.credentials = new Collection(transport, OPERATIONS.credentials);
    this.apiKeys = new Collection(transport, OPERATIONS.apiKeys);
    this.endpointConfigurations = new Collection(transport, OPERATIONS.endpointConfigurations);
    this.enrolmentKeys = new Collection(transport, OPERATIONS.enrolmentKeys);
    this.devices = new Devices(transport, OPERATIONS.devices);
    this.vaults = new Vaults(transport, OPERATIONS.vaults);
    this.secrets = new Collection(transport, OPERATIONS.secrets);
    this.people = new People(transport, OPERATIONS.people);
    this.reservedAddrs = new Collection(transport, OPERATIONS.reservedAddrs);
    this.shareLinks = new ShareLinks(transport, OPERATIONS.shareLinks);
    this.auditEvents = new AuditEvents(transport, OPERATIONS.auditEvents);
    this.applicationUsers = new DeletableCollection(transport, OPERATIONS.applicationUsers);
    this.applicationSessions = new DeletableCollection(transport, OPERATIONS.applicationSessions);
    this.eventDestinations = new EventDestinations(transport, OPERATIONS.eventDestinations);
    this.eventSubscriptions = new EventSubscriptions(transport, OPERATIONS.eventSubscriptions);
    this.endpoints = new Collection(transport, OPERATIONS.endpoints);
    this.tunnels = new ReadableCollection(transport, OPERATIONS.tunnels);
    this.tunnelSessions = new TunnelSessions(transport, OPERATIONS.tunnelSessions);
  }
}

/** Hostnames held for the account. */
export class ReservedDomains extends Collection<ReservedDomainCreate, ReservedDomainUpdate, ReservedDomain> {
  /** Disables automatic certificates for the domain and detaches the current one. */
  async detachCertificateManagementPolicy(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.transport.send(OPERATIONS.reservedDomains.detachCertificateManagementPolicy, { id, signal });
  }

  /** Detaches an uploaded certificate. For an automatic one, detach its policy. */
  async detachCertificate(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.transport.send(OPERATIONS.reservedDomains.detachCertificate, { id, signal });
  }

  /** Detaches the HTTP endpoint configuration, if any. */
  async detachHttpEndpointConfiguration(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.transport.send(OPERATIONS.reservedDomains.detachHttpEndpointConfiguration, { id, signal });
  }

  /** Detaches the HTTPS endpoint configuration, if any. */
  async detachHttpsEndpointConfiguration(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.transport.send(OPERATIONS.reservedDomains.detachHttpsEndpointConfiguration, { id, signal });
  }

  /** Looks up the domain's DNS records now, with the gateway's resolver. ngrok's API does not have it. */
  checkDns(id: string, { signal }: CallOptions = {}): Promise<DnsCheck> {
    return call(this.transport, OPERATIONS.reservedDomains.checkDns, { id, signal });
  }
}

/** TLS edges and their modules. */
export class TlsEdges extends Collection<TlsEdgeCreate, TlsEdgeUpdate, TlsEdge> {
  /** Backend that receives the traffic. */
  readonly backend = new EdgeModule<BackendModuleBody, BackendModule>(this.transport, OPERATIONS.tlsEdgeBackend);
  /** Allowed source addresses. */
  readonly ipRestriction = new EdgeModule<IpRestrictionModuleBody, IpRestrictionModule>(
    this.transport,
    OPERATIONS.tlsEdgeIpRestriction,
  );
  /** Required client certificates. */
  readonly mutualTls = new EdgeModule<MutualTlsModuleBody, MutualTlsModule>(
    this.transport,
    OPERATIONS.tlsEdgeMutualTls,
  );
  /** Where TLS is terminated, and the minimum version. */
  readonly tlsTermination = new EdgeModule<TlsTerminationModuleBody, TlsTerminationModule>(
    this.transport,
    OPERATIONS.tlsEdgeTlsTermination,
  );
  /** The traffic policy, as JSON or YAML. */
  readonly trafficPolicy = new EdgeModule<TrafficPolicyModuleBody, TrafficPolicyModule>(
    this.transport,
    OPERATIONS.tlsEdgeTrafficPolicy,
  );
}

/** Sets of secrets for policies. */
export class Vaults extends Collection<VaultCreate, VaultUpdate, Vault> {
  /** Lists one page of a vault's secrets, newest first. */
  listSecrets(id: string, options: ListOptions = {}): Promise<Page<Secret>> {
    return listPage(this.transport, OPERATIONS.vaults.listSecrets, options, id);
  }

  /** Iterates over all secrets of a vault, like {@link all}. */
  allSecrets(id: string, options: ListOptions = {}): AsyncGenerator<Secret, void, undefined> {
    return allPages(this.transport, OPERATIONS.vaults.listSecrets, options, id);
  }
}

/** Links that let browsers in at an endpoint. */
export class ShareLinks extends ReadableCollection<ShareLink> {
  /** Makes a link to an endpoint that is online and whose policy has the action gateway-share-links. */
  create(body: ShareLinkCreate, { signal }: CallOptions = {}): Promise<ShareLink> {
    return call(this.transport, OPERATIONS.shareLinks.create, { body, signal });
  }

  /** Revokes a link: browsers that have opened it are no longer let in. */
  async delete(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.transport.send(OPERATIONS.shareLinks.delete, { id, signal });
  }
}

/** Where events are sent. */
export class EventDestinations extends Collection<EventDestinationCreate, EventDestinationUpdate, EventDestination> {
  /** Lists one page of the events that a destination has refused, newest first. */
  listRefusedEvents(id: string, options: ListOptions = {}): Promise<Page<RefusedEvent>> {
    return listPage(this.transport, OPERATIONS.eventDestinations.listRefusedEvents, options, id);
  }

  /** Iterates over all events that a destination has refused, like {@link all}. */
  allRefusedEvents(id: string, options: ListOptions = {}): AsyncGenerator<RefusedEvent, void, undefined> {
    return allPages(this.transport, OPERATIONS.eventDestinations.listRefusedEvents, options, id);
  }

  /** Sends refused events again: those chosen, or all. */
  sendAgain(id: string, body: RefusedEventChoice = {}, { signal }: CallOptions = {}): Promise<EventDestination> {
    return call(this.transport, OPERATIONS.eventDestinations.sendAgain, { id, body, signal });
  }

  /** Forgets refused events: those chosen, or all. */
  letGo(id: string, body: RefusedEventChoice = {}, { signal }: CallOptions = {}): Promise<EventDestination> {
    return call(this.transport, OPERATIONS.eventDestinations.letGo, { id, body, signal });
  }
}

/** Which events are sent to which destinations. */
export class EventSubscriptions extends Collection<
  EventSubscriptionCreate,
  EventSubscriptionUpdate,
  EventSubscription
> {
  /** The types of events that it is for. */
  async getSources(id: string, { signal }: CallOptions = {}): Promise<EventSource[]> {
    return (await call(this.transport, OPERATIONS.eventSubscriptions.getSources, { id, signal })).sources;
  }

  /** Adds a type of events, which applies from now on. */
  addSource(id: string, type: string, { signal }: CallOptions = {}): Promise<EventSource> {
    return call(this.transport, OPERATIONS.eventSubscriptions.addSource, { id, body: { type }, signal });
  }

  /** @throws {ManagementError} `isNotFound` when it is not for this type */
  getSource(id: string, type: string, { signal }: CallOptions = {}): Promise<EventSource> {
    return call(this.transport, OPERATIONS.eventSubscriptions.getSource, { id, type, signal });
  }

  /** Like {@link getSource}, for programs that update everything: a type is all that a source has. */
  updateSource(id: string, type: string, { signal }: CallOptions = {}): Promise<EventSource> {
    return call(this.transport, OPERATIONS.eventSubscriptions.updateSource, { id, type, body: {}, signal });
  }

  /** Removes a type of events. */
  async removeSource(id: string, type: string, { signal }: CallOptions = {}): Promise<void> {
    await this.transport.send(OPERATIONS.eventSubscriptions.removeSource, { id, type, signal });
  }
}

/** People of this gateway. */
export class People extends Collection<PersonCreate, PersonUpdate, Person> {
  /** Creates a link by which the person chooses a password or passkey, once. Earlier links end. */
  createLink(id: string, { signal }: CallOptions = {}): Promise<PersonLink> {
    return call(this.transport, OPERATIONS.people.createLink, { id, signal });
  }

  /** Ends all sign-ins of the person, at all tunnels and in all browsers. */
  async signOut(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.transport.send(OPERATIONS.people.signOut, { id, signal });
  }

  /** Lists one page of the endpoints online whose policy lets the person sign in. Other rules may let in fewer people. */
  listEndpoints(id: string, options: ListOptions = {}): Promise<Page<Endpoint>> {
    return listPage(this.transport, OPERATIONS.people.listEndpoints, options, id);
  }

  /** Iterates over all of them, like {@link all}. */
  allEndpoints(id: string, options: ListOptions = {}): AsyncGenerator<Endpoint, void, undefined> {
    return allPages(this.transport, OPERATIONS.people.listEndpoints, options, id);
  }
}

/** Sessions of agents. */
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

/** Who has changed what. */
export class AuditEvents extends ReadableCollection<AuditEvent, keyof AuditFilters> {
  /** Puts the traffic policy of an object back to what it was before a change; answers with the event of that. */
  undo(id: string, { signal }: CallOptions = {}): Promise<AuditEvent> {
    return call(this.transport, OPERATIONS.auditEvents.undo, { id, signal });
  }
}

/** Devices that have joined with an enrolment key. A deleted one loses its authtoken, and can join again with a valid code. */
export class Devices extends DeletableCollection<Device> {
  /** Changes the members in the body. A new name takes effect when the device joins again. */
  update(id: string, body: DeviceUpdate, { signal }: CallOptions = {}): Promise<Device> {
    return call(this.transport, OPERATIONS.devices.update, { id, body, signal });
  }

  /** Lets a device join that waits for it. */
  approve(id: string, { signal }: CallOptions = {}): Promise<Device> {
    return call(this.transport, OPERATIONS.devices.approve, { id, signal });
  }

  /** Takes the device's authtoken, which ends its session; it cannot join again. */
  revoke(id: string, { signal }: CallOptions = {}): Promise<Device> {
    return call(this.transport, OPERATIONS.devices.revoke, { id, signal });
  }

  /** Gives the device another authtoken when it joins again. */
  rotate(id: string, { signal }: CallOptions = {}): Promise<Device> {
    return call(this.transport, OPERATIONS.devices.rotate, { id, signal });
  }
}
