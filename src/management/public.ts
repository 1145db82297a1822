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
export { NotReadyInTime } from './domain-readiness.ts';
export type { Fetch, FetchAnswer, FetchRequest } from './fetch-trusting.ts';
export { ManagementError } from './management-error.ts';
export { type Authtoken, type Provisioned, type ProvisionPlan, provision } from './provision.ts';
export type { ProvisionEvent, ProvisionOptions } from './provision-run.ts';
export type { ApiKey, ApiKeyCreate, ApiKeyUpdate } from './resources/api-key.ts';
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
export type { Credential, CredentialCreate, CredentialUpdate } from './resources/credential.ts';
export type { Device, DeviceUpdate } from './resources/device.ts';
export type { Endpoint, EndpointCreate, EndpointUpdate } from './resources/endpoint.ts';
export type { Enrolment, EnrolmentRequest } from './resources/enrolment.ts';
export type { EnrolmentKey, EnrolmentKeyCreate, EnrolmentKeyUpdate } from './resources/enrolment-key.ts';
export type {
  EventDestination,
  EventDestinationCreate,
  EventDestinationUpdate,
  EventTarget,
} from './resources/event-destination.ts';
export type {
  EventSource,
  EventSubscription,
  EventSubscriptionCreate,
  EventSubscriptionUpdate,
} from './resources/event-subscription.ts';
export type {
  IpPolicy,
  IpPolicyCreate,
  IpPolicyRule,
  IpPolicyRuleCreate,
  IpPolicyRuleUpdate,
  IpPolicyUpdate,
} from './resources/ip-policy.ts';
export type { IpRestriction, IpRestrictionCreate, IpRestrictionUpdate } from './resources/ip-restriction.ts';
export type { Ref } from './resources/members.ts';
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
