import { z } from 'zod';
import { HOSTNAME_PATTERN, parseHostname } from './hostname.ts';
import { type Refusal, refused, WRONG_VALUE } from './refusal.ts';
import {
  ANNOTATIONS_ANSWER,
  alwaysNull,
  annotations,
  body,
  COMMON_ANSWER,
  defineResource,
  optionalIdOf,
  orNull,
  parsed,
  Ref,
  text,
} from './resource.ts';

const REGIONS = ['au', 'eu', 'ap', 'us', 'jp', 'in', 'sa'] as const;

export const CertificatePolicyBody = body({
  authority: z.enum(['letsencrypt'], refused(435, 'must be letsencrypt')).default('letsencrypt'),
  private_key_type: z.enum(['rsa', 'ecdsa'], refused(1909, 'must be rsa or ecdsa')).default('rsa'),
});

const certificate = {
  certificate_id: optionalIdOf('cert_'),
  certificate_management_policy: CertificatePolicyBody.optional(),
};

const domainAnnotations = { description: text(4096, 420).optional(), metadata: text(4096, 421).optional() };

/** A wildcard for a whole top-level domain would claim names of others. */
function parseReservable(name: string): string | Refusal {
  const hostname = parseHostname(name);
  return typeof hostname === 'string' && /^\*\.[^.]+$/.test(hostname)
    ? { code: 416, text: 'a wildcard needs a domain below the top-level domain' }
    : hostname;
}

const name = parsed(parseReservable, 448, HOSTNAME_PATTERN);

/** ngrok's clients send it empty, or null. */
const resolvesTo = z.array(z.unknown()).max(0, refused(WRONG_VALUE, 'is not supported; leave it empty')).optional();

/** Deprecated: it is checked, and not stored. @param code the error code for another one */
export function region(code: number) {
  return z.enum(['', ...REGIONS], refused(code, `must be one of ${REGIONS.join(', ')}`)).optional();
}

const createMembers = body({
  domain: name.optional().meta({ description: 'Required, here or as name.' }),
  name: name.optional().meta({ description: 'Deprecated alias of domain, which Terraform configurations use.' }),
  region: region(400),
  resolves_to: resolvesTo,
  ...domainAnnotations,
  ...certificate,
});

export interface ReservedDomainCreate extends Omit<z.input<typeof createMembers>, 'name' | 'resolves_to'> {
  /** For example `cam.example.com`, or `*.example.com` for all names below it. It cannot be changed later. */
  domain: string;
  /** Deprecated: checked, but not stored. `""` means not set. */
  region?: '' | (typeof REGIONS)[number] | undefined;
  /** An uploaded certificate; `""` means none. Not together with `certificate_management_policy`. */
  certificate_id?: string | undefined;
  /** Enables automatic certificates. Not together with `certificate_id`. */
  certificate_management_policy?: z.input<typeof CertificatePolicyBody> | undefined;
}

export const ReservedDomainCreate = withDomain(createMembers);

/** Resolves the alias. The input's type requires `domain`, since our own client does not know the alias. */
function withDomain(members: typeof createMembers) {
  const schema = members.transform(({ name, resolves_to: _, domain = name, ...rest }, ctx) => {
    const refuse = (member: string, message: string) => {
      ctx.issues.push({ code: 'custom', path: [member], message, input: domain });
      return z.NEVER;
    };
    if (domain === undefined) return refuse('domain', refused(448, 'is missing or not a string'));
    if (name !== undefined && name !== domain) return refuse('name', refused(WRONG_VALUE, 'differs from domain'));
    return { ...rest, domain };
  });
  return schema as z.ZodType<z.output<typeof schema>, ReservedDomainCreate>;
}

export const ReservedDomainUpdate = body({
  resolves_to: resolvesTo,
  ...domainAnnotations,
  ...certificate,
  http_endpoint_configuration_id: optionalIdOf('ec_'),
  https_endpoint_configuration_id: optionalIdOf('ec_'),
});
export interface ReservedDomainUpdate extends Omit<z.input<typeof ReservedDomainUpdate>, 'resolves_to'> {
  /** An uploaded certificate. It ends a `certificate_management_policy`. The present id and `""` change nothing. */
  certificate_id?: string | undefined;
  /** Enables automatic certificates in place of an uploaded one. */
  certificate_management_policy?: z.input<typeof CertificatePolicyBody> | undefined;
  /** One of type `http`; `""` changes nothing. */
  http_endpoint_configuration_id?: string | undefined;
  /** One of type `https`; `""` changes nothing. */
  https_endpoint_configuration_id?: string | undefined;
}

export const CertificatePolicy = z.object({ authority: z.string(), private_key_type: z.string() });
export interface CertificatePolicy extends z.output<typeof CertificatePolicy> {}

export const CertificateJob = z.object({
  error_code: orNull(z.string()),
  msg: z.string(),
  started_at: z.string(),
  retries_at: orNull(z.string()),
});
export interface CertificateJob extends z.output<typeof CertificateJob> {
  /** `INTERNAL_ERROR` (temporary), `DNS_ERROR` (the owner must correct a record), or null without an error. */
  error_code: string | null;
  /** The progress or the problem, in words. */
  msg: string;
  /** Null when no retry is scheduled. */
  retries_at: string | null;
}

export const CertificateStatus = z.object({
  renews_at: orNull(z.string()),
  provisioning_job: orNull(CertificateJob),
});
export interface CertificateStatus extends z.output<typeof CertificateStatus> {
  /** Null until a certificate is issued. */
  renews_at: string | null;
  /** Null while no certificate is being issued or renewed. */
  provisioning_job: CertificateJob | null;
}

/** A hostname or wildcard that is reserved for the account. */
export const ReservedDomain = z.object({
  ...COMMON_ANSWER,
  description: z.string().optional(),
  metadata: z.string().optional(),
  domain: z.string(),
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
export interface ReservedDomain extends z.output<typeof ReservedDomain> {
  /** Missing when never set, like `metadata`. */
  description?: string | undefined;
  /** Deprecated: always `""`. */
  region: string;
  /** The target for the domain's CNAME record; null below the gateway's own domain. */
  cname_target: string | null;
  /** The uploaded certificate, or the last issued one. */
  certificate: Ref | null;
  /** Null: no automatic certificates. */
  certificate_management_policy: CertificatePolicy | null;
  /** Null without a policy. */
  certificate_management_status: CertificateStatus | null;
  /** The target for the CNAME record of `_acme-challenge.<domain>` of a wildcard; null for other domains. */
  acme_challenge_cname_target: string | null;
}

export const reservedDomains = defineResource({
  name: 'reserved domain',
  label: 'Domain',
  path: '/reserved_domains',
  idPrefix: 'rd_',
  eventName: 'domain',
  create: ReservedDomainCreate,
  update: ReservedDomainUpdate,
  answer: ReservedDomain,
});

export const EndpointConfigurationCreate = body({ ...annotations(), type: z.enum(['http', 'https', 'tcp']) });
export interface EndpointConfigurationCreate extends z.input<typeof EndpointConfigurationCreate> {}

export const EndpointConfigurationUpdate = body(annotations());
export interface EndpointConfigurationUpdate extends z.input<typeof EndpointConfigurationUpdate> {}

/** A configuration that reserved domains reference in `http_` and `https_endpoint_configuration`. */
export const EndpointConfiguration = z.object({ ...COMMON_ANSWER, ...ANNOTATIONS_ANSWER, type: z.string() });
export interface EndpointConfiguration extends z.output<typeof EndpointConfiguration> {}

export const endpointConfigurations = defineResource({
  name: 'endpoint configuration',
  path: '/endpoint_configurations',
  idPrefix: 'ec_',
  unknownIdCode: 1600,
  create: EndpointConfigurationCreate,
  update: EndpointConfigurationUpdate,
  answer: EndpointConfiguration,
  row: EndpointConfiguration,
});

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
