import type { Clock } from '../lib/time/clock.ts';
import type { ManagementClient } from './client.ts';
import type { CnameRecord } from './cname-record.ts';
import type { BotUser } from './resources/bot-user.ts';
import type { ReservedDomain } from './resources/reserved-domain.ts';

/** Progress of provisioning, in this order. Waits are reported when their cause changes. */
export type ProvisionEvent =
  | { step: 'domain'; outcome: 'created' | 'found' | 'updated'; domain: ReservedDomain }
  | { step: 'bot'; outcome: 'created' | 'found'; bot: BotUser }
  | { step: 'records'; records: CnameRecord[] }
  | { step: 'dns'; record: CnameRecord; inPlace: boolean; found: string }
  | { step: 'certificate'; state: 'waiting' | 'failing' | 'ready'; message: string; retriesAt: string | null };

/** Options of provisioning. */
export interface ProvisionOptions {
  onProgress?: ((event: ProvisionEvent) => void) | undefined;
  /** Resolvers for checking DNS records, `ip` or `ip:port`; default: the system's. */
  dnsServers?: readonly string[] | undefined;
  /** Milliseconds to wait for DNS and the certificate together. Default: 30 minutes. */
  waitMs?: number | undefined;
  signal?: AbortSignal | undefined;
  /** For tests. */
  clock?: Clock | undefined;
}

/** Shared state of one run. */
export interface Run {
  client: ManagementClient;
  report: (event: ProvisionEvent) => void;
  clock: Clock;
  /** Compared with `clock.now()`. */
  deadline: number;
  signal: AbortSignal | undefined;
}
