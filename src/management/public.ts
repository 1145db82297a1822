/**
 * The public entry `device-agent/management`: the typed client and the provisioning workflow. The build adds the types of all
 * resources (packaging/management-types.ts).
 */

export { OperatorError } from '../lib/errors.ts';
export type { Clock } from '../lib/time/clock.ts';
export { ManagementClient } from './client.ts';
export type {
  CallOptions,
  Collection,
  DeletableCollection,
  EdgeModule,
  ListOptions,
  ManagementClientOptions,
  Page,
  ReadableCollection,
} from './client-types.ts';
export { type CnameRecord, zoneFileLine } from './cname-record.ts';
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
