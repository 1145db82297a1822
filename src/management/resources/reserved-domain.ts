import { z } from 'zod';
import { parseHostname } from './hostname.ts';
import { alwaysNull, body, COMMON_ANSWER, idOf, orNull, parsed, Ref, text } from './members.ts';
import { type Refusal, refused } from './refusal.ts';
import { UNKNOWN_ID } from './resource.ts';

const REGIONS = ['au', 'eu', 'ap', 'us', 'jp', 'in', 'sa'] as const;

/** How certificates are obtained by the service itself. */
export const CertificatePolicyBody = body({
  authority: z.enum(['letsencrypt'], refused(435, 'must be letsencrypt')).default('letsencrypt'),
  private_key_type: z.enum(['rsa', 'ecdsa'], refused(1909, 'must be rsa or ecdsa')).default('rsa'),
});

const certificate = {
  certificate_id: idOf(['cert_'], 227).optional(),
  certificate_management_policy: CertificatePolicyBody.optional(),
};

const annotations = { description: text(4096, 420).optional(), metadata: text(4096, 421).optional() };

/** An uploaded certificate and an automatic one exclude each other. */
function hasOneSource(domain: { certificate_id?: unknown; certificate_management_policy?: unknown }): boolean {
  return domain.certificate_id === undefined || domain.certificate_management_policy === undefined;
}
const ONE_SOURCE = refused(434, 'certificate_id and certificate_management_policy exclude each other');

/** A wildcard over a top-level name would claim everybody's names. */
function parseReservable(name: string): string | Refusal {
  const hostname = parseHostname(name);
  return typeof hostname === 'string' && /^\*\.[^.]+$/.test(hostname)
    ? { code: 416, text: 'a wildcard needs a name of its own below the top-level one' }
    : hostname;
}

export const ReservedDomainCreate = body({
  domain: parsed(parseReservable, 448),
  /** Deprecated: checked, not stored. `""` means that it is not set. */
  region: z.enum(['', ...REGIONS], refused(400, `must be one of ${REGIONS.join(', ')}`)).optional(),
  ...annotations,
  ...certificate,
}).refine(hasOneSource, ONE_SOURCE);
export type ReservedDomainCreate = z.input<typeof ReservedDomainCreate>;

export const ReservedDomainUpdate = body({
  ...annotations,
  ...certificate,
  http_endpoint_configuration_id: idOf(['ec_'], 227).optional(),
  https_endpoint_configuration_id: idOf(['ec_'], 227).optional(),
}).refine(hasOneSource, ONE_SOURCE);
export type ReservedDomainUpdate = z.input<typeof ReservedDomainUpdate>;

export const CertificatePolicy = z.object({ authority: z.string(), private_key_type: z.string() });
export type CertificatePolicy = z.output<typeof CertificatePolicy>;

export const CertificateJob = z.object({
  /** `INTERNAL_ERROR` (temporary), `DNS_ERROR` (the owner must correct a record), null while all is well. */
  error_code: orNull(z.string()),
  msg: z.string(),
  started_at: z.string(),
  retries_at: orNull(z.string()),
});
export type CertificateJob = z.output<typeof CertificateJob>;

export const CertificateStatus = z.object({
  renews_at: orNull(z.string()),
  /** Null while nothing is being issued or renewed. */
  provisioning_job: orNull(CertificateJob),
});
export type CertificateStatus = z.output<typeof CertificateStatus>;

/** A hostname, perhaps with a wildcard, held for the account. */
export const ReservedDomain = z.object({
  ...COMMON_ANSWER,
  /** Left out when never set, as is `metadata`. */
  description: z.string().optional(),
  metadata: z.string().optional(),
  domain: z.string(),
  /** Deprecated: always `""`. */
  region: z.string().default(''),
  cname_target: orNull(z.string()),
  certificate: orNull(Ref),
  certificate_management_policy: orNull(CertificatePolicy),
  certificate_management_status: orNull(CertificateStatus),
  acme_challenge_cname_target: orNull(z.string()),
  http_endpoint_configuration: orNull(Ref),
  https_endpoint_configuration: orNull(Ref),
  error_redirect_url: alwaysNull,
});
export type ReservedDomain = z.output<typeof ReservedDomain>;

export const reservedDomains = {
  name: 'reserved domain',
  path: '/reserved_domains',
  idPrefix: 'rd_',
  listKey: 'reserved_domains',
  unknownIdCode: UNKNOWN_ID,
  create: ReservedDomainCreate,
  update: ReservedDomainUpdate,
  answer: ReservedDomain,
};
