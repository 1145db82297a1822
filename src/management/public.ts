/** The public entry `device-agent/management`: the typed client and the provisioning workflow. */

export { OperatorError } from '../lib/errors.ts';
export type { Clock } from '../lib/time/clock.ts';
export {
  type Devices,
  type EventSubscriptions,
  ManagementClient,
  type ReservedDomains,
  type ShareLinks,
  type TlsEdges,
  type TunnelSessions,
  type Vaults,
} from './client.ts';
export { type CnameRecord, zoneFileLine } from './cname-record.ts';
export type {
  CallOptions,
  Collection,
  DeletableCollection,
  EdgeModule,
  ListOptions,
  Page,
  ReadableCollection,
} from './collection.ts';
export type { Fetch, FetchAnswer, FetchRequest } from './fetch-trusting.ts';
export { ManagementError } from './management-error.ts';
export {
  type Authtoken,
  NotReadyInTime,
  type ProvisionEvent,
  type Provisioned,
  type ProvisionOptions,
  type ProvisionPlan,
  provision,
} from './provision.ts';
export type { ApplicationSession, ApplicationUser } from './resources/application-session.ts';
export type { AuditEvent, AuditFilters } from './resources/audit-event.ts';
export type {
  HttpResponseBackend,
  HttpResponseBackendCreate,
  HttpResponseBackendUpdate,
  TunnelGroupBackend,
  TunnelGroupBackendCreate,
  TunnelGroupBackendUpdate,
} from './resources/backend.ts';
export type { BotUser, BotUserCreate, BotUserUpdate } from './resources/bot-user.ts';
export type {
  CertificateAuthority,
  CertificateAuthorityCreate,
  CertificateAuthorityUpdate,
  TlsCertificate,
  TlsCertificateCreate,
  TlsCertificateUpdate,
} from './resources/certificate.ts';
export type {
  ApiKey,
  ApiKeyCreate,
  ApiKeyUpdate,
  Credential,
  CredentialCreate,
  CredentialUpdate,
} from './resources/credential.ts';
export type { Device, DeviceUpdate } from './resources/device.ts';
export type { Endpoint, EndpointCreate, EndpointUpdate } from './resources/endpoint.ts';
export type {
  Enrolment,
  EnrolmentKey,
  EnrolmentKeyCreate,
  EnrolmentKeyUpdate,
  EnrolmentRequest,
} from './resources/enrolment.ts';
export type {
  EventDestination,
  EventDestinationCreate,
  EventDestinationUpdate,
  EventSource,
  EventSubscription,
  EventSubscriptionCreate,
  EventSubscriptionUpdate,
  EventTarget,
  RefusedEvent,
  RefusedEventChoice,
} from './resources/event.ts';
export type {
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
export type { Person, PersonCreate, PersonLink, PersonUpdate } from './resources/person.ts';
export type { ReservedAddr, ReservedAddrCreate, ReservedAddrUpdate } from './resources/reserved-addr.ts';
export type {
  CertificateJob,
  CertificatePolicy,
  CertificateStatus,
  DnsCheck,
  DnsRecordCheck,
  EndpointConfiguration,
  EndpointConfigurationCreate,
  EndpointConfigurationUpdate,
  ReservedDomain,
  ReservedDomainCreate,
  ReservedDomainUpdate,
} from './resources/reserved-domain.ts';
export type { Ref } from './resources/resource.ts';
export type { ShareLink, ShareLinkCreate } from './resources/share-link.ts';
export type {
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
export type { Tunnel, TunnelSession } from './resources/tunnel.ts';
export type { Secret, SecretCreate, SecretUpdate, Vault, VaultCreate, VaultUpdate } from './resources/vault.ts';
export type { ManagementClientOptions } from './transport.ts';
