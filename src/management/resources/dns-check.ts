import { z } from 'zod';
import { orNull } from './members.ts';

export const DnsRecordCheck = z.object({
  name: z.string(),
  target: orNull(z.string()),
  purpose: z.enum(['traffic', 'certificate']),
  in_place: z.boolean(),
  found: z.string(),
});
export interface DnsRecordCheck extends z.output<typeof DnsRecordCheck> {
  /** For example `*.sitea.example.com`. */
  name: string;
  /** The target of the CNAME record; null where an address suffices, below the gateway's own domain. */
  target: string | null;
  /** `traffic` leads clients to the gateway, `certificate` lets it get the certificate. */
  purpose: 'traffic' | 'certificate';
  /** What DNS has there, in words. */
  found: string;
}

/** What DNS has for a reserved domain, as the gateway sees it. */
export const DnsCheck = z.object({ checked_at: z.string(), records: z.array(DnsRecordCheck) });
export interface DnsCheck extends z.output<typeof DnsCheck> {
  /** Empty where the gateway's names need no DNS: below localhost. */
  records: DnsRecordCheck[];
}
