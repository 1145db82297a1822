import type { Clock } from '../lib/clock.ts';
import type { ManagementClient } from './client.ts';
import type { CnameRecord } from './cname-record.ts';
import type { BotUser } from './resources/bot-user.ts';
import type { ReservedDomain } from './resources/reserved-domain.ts';

/** What happens while a site is provisioned, in this order. Waiting is reported whenever its cause changes. */
export type ProvisionEvent =
  | { step: 'domain'; outcome: 'created' | 'found' | 'updated'; domain: ReservedDomain }
  | { step: 'bot'; outcome: 'created' | 'found'; bot: BotUser }
  | { step: 'records'; records: CnameRecord[] }
  | { step: 'dns'; record: CnameRecord; inPlace: boolean; found: string }
  | { step: 'certificate'; state: 'waiting' | 'failing' | 'ready'; message: string; retriesAt: string | null };

/** How provisioning goes about it. */
export interface ProvisionOptions {
  onProgress?: ((event: ProvisionEvent) => void) | undefined;
  /** Resolvers for checking DNS records, `ip` or `ip:port`; left out: those of the system. */
  dnsServers?: readonly string[] | undefined;
  /** Milliseconds to wait for DNS and the certificate together. Default: 30 minutes. */
  waitMs?: number | undefined;
  signal?: AbortSignal | undefined;
  /** Time and chance, for tests. */
  clock?: Clock | undefined;
}

/** One run of the workflow: what all of its steps share. */
export interface Run {
  client: ManagementClient;
  report: (event: ProvisionEvent) => void;
  clock: Clock;
  /** On the clock's scale. */
  deadline: number;
  signal: AbortSignal | undefined;
}
