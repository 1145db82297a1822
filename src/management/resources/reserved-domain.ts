import { z } from 'zod';
import { HOSTNAME_PATTERN, parseHostname } from './hostname.ts';
import { type Refusal, refused, WRONG_VALUE } from './refusal.ts';
import {
  ANNOTATIONS_ANSWER,
  alwaysNull,
  annotations,
  body,
  COMMON_ANSWER,
  DESCRIPTION,
  defineResource,
  listFilters,
  METADATA,
  NO_REGION,
  OWN_FORMS,
  optionalIdOf,
  orNull,
  parsed,
  Ref,
  stateFilter,
  text,
  UTC,
} from './resource.ts';

const REGIONS = ['au', 'eu', 'ap', 'us', 'jp', 'in', 'sa'] as const;

const POLICY = {
  authority: 'Always `letsencrypt`: the CA that the settings of the gateway name.',
  private_key_type: 'The kind of the private key: `rsa` or `ecdsa`.',
};

export const CertificatePolicyBody = body({
  authority: z
    .enum(['letsencrypt'], refused(435, 'must be letsencrypt'))
    .default('letsencrypt')
    .describe(POLICY.authority),
  private_key_type: z
    .enum(['rsa', 'ecdsa'], refused(1909, 'must be rsa or ecdsa'))
    .default('rsa')
    .describe(POLICY.private_key_type),
});

const certificate = {
  certificate_id: optionalIdOf('cert_').describe(
    'An uploaded certificate; `""` means none. Not together with `certificate_management_policy`.',
  ),
  certificate_management_policy: CertificatePolicyBody.optional().describe(
    'Enables automatic certificates. Not together with `certificate_id`.',
  ),
};

const domainAnnotations = {
  description: text(4096, 420, DESCRIPTION).optional(),
  metadata: text(4096, 421, METADATA).optional(),
};

/** A wildcard for a whole top-level domain would claim names of others. */
function parseReservable(name: string): string | Refusal {
  const hostname = parseHostname(name);
  return typeof hostname === 'string' && /^\*\.[^.]+$/.test(hostname)
    ? { code: 416, text: 'a wildcard needs a domain below the top-level domain' }
    : hostname;
}

const name = parsed(parseReservable, 448, HOSTNAME_PATTERN);

/** ngrok's clients send it empty, or null. */
const resolvesTo = z
  .array(z.unknown())
  .max(0, refused(WRONG_VALUE, 'is not supported; leave it empty'))
  .optional()
  .describe('Not supported; empty at most.');

/** Deprecated: it is checked, and not stored. @param code the error code for another one */
export function region(code: number) {
  return z
    .enum(['', ...REGIONS], refused(code, `must be one of ${REGIONS.join(', ')}`))
    .optional()
    .describe('Deprecated: checked, but not stored. `""` means not set.');
}

const DOMAIN = 'For example `cam.example.com`, or `*.example.com` for all names below it. It cannot be changed later.';
const ownCreate = body({ domain: name.describe(DOMAIN), region: region(400), ...domainAnnotations, ...certificate });
const createMembers = body({
  domain: name.optional().describe(`${DOMAIN} Required, here or as \`name\`.`),
  name: name.optional().describe('Deprecated alias of `domain`, which Terraform configurations use.'),
  region: region(400),
  resolves_to: resolvesTo,
  ...domainAnnotations,
  ...certificate,
});

export const ReservedDomainCreate = withDomain(createMembers);
OWN_FORMS.set(ReservedDomainCreate, ownCreate);
export type ReservedDomainCreate = z.input<typeof ownCreate>;

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

const ownUpdate = body({
  ...domainAnnotations,
  certificate_id: certificate.certificate_id.describe(
    'An uploaded certificate. It ends a `certificate_management_policy`. The present id and `""` change nothing.',
  ),
  certificate_management_policy: certificate.certificate_management_policy.describe(
    'Enables automatic certificates in place of an uploaded one.',
  ),
  http_endpoint_configuration_id: optionalIdOf('ec_').describe('One of type `http`; `""` changes nothing.'),
  https_endpoint_configuration_id: optionalIdOf('ec_').describe('One of type `https`; `""` changes nothing.'),
});

export const ReservedDomainUpdate = body({ resolves_to: resolvesTo, ...ownUpdate.shape });
OWN_FORMS.set(ReservedDomainUpdate, ownUpdate);
export type ReservedDomainUpdate = z.input<typeof ownUpdate>;

export const CertificatePolicy = z.object({
  authority: z.string().describe(POLICY.authority),
  private_key_type: z.string().describe(POLICY.private_key_type),
});
export type CertificatePolicy = z.output<typeof CertificatePolicy>;

export const CertificateJob = z.object({
  error_code: orNull(z.string()).describe(
    '`INTERNAL_ERROR` (temporary), `DNS_ERROR` (the owner must correct a record), or null without an error.',
  ),
  msg: z.string().describe('The progress or the problem, in words.'),
  started_at: z.string().describe(`When the gateway began with it. ${UTC}`),
  retries_at: orNull(z.string()).describe(`When it is tried again; null when no retry is scheduled. ${UTC}`),
});
export type CertificateJob = z.output<typeof CertificateJob>;

export const CertificateStatus = z.object({
  renews_at: orNull(z.string()).describe(`When the certificate is renewed; null until one is issued. ${UTC}`),
  provisioning_job: orNull(CertificateJob).describe(
    'How far the gateway is with issuing or renewing a certificate; null while it does neither.',
  ),
});
export type CertificateStatus = z.output<typeof CertificateStatus>;

export const ReservedDomain = z
  .object({
    ...COMMON_ANSWER,
    description: z.string().optional().describe(`${DESCRIPTION} Missing when it was never set.`),
    metadata: z.string().optional().describe(`${METADATA} Missing when it was never set.`),
    domain: z.string().describe('The hostname or wildcard, in lower case and punycode.'),
    region: z.string().default('').describe(NO_REGION),
    cname_target: orNull(z.string()).describe(
      "The target for the domain's CNAME record; null below the gateway's own domain.",
    ),
    certificate: orNull(Ref).describe('The uploaded certificate, or the last issued one; null without one.'),
    certificate_management_policy: orNull(CertificatePolicy).describe('Null: no automatic certificates.'),
    certificate_management_status: orNull(CertificateStatus).describe(
      'How the automatic certificate is doing; null without a policy.',
    ),
    acme_challenge_cname_target: orNull(z.string()).describe(
      'The target for the CNAME record of `_acme-challenge.<domain>` of a wildcard; null for other domains.',
    ),
    http_endpoint_configuration: orNull(Ref).describe('The endpoint configuration for HTTP; null without one.'),
    https_endpoint_configuration: orNull(Ref).describe('The endpoint configuration for HTTPS; null without one.'),
    error_redirect_url: alwaysNull,
  })
  .describe('A hostname or wildcard that is reserved for the account.');
export type ReservedDomain = z.output<typeof ReservedDomain>;

export const ReservedDomainFilters = listFilters(
  'id, domain, description or metadata',
  ['domain', 'state', 'description'],
  {
    state: stateFilter(
      ['ready', 'uploaded', 'provisioning', 'dns_error', 'internal_error', 'none', 'failing'],
      'How its certificate is; `failing`: either error.',
    ),
  },
);
export type ReservedDomainFilters = z.output<typeof ReservedDomainFilters>;

export const reservedDomains = defineResource({
  name: 'reserved domain',
  label: 'Domain',
  path: '/reserved_domains',
  idPrefix: 'rd_',
  eventName: 'domain',
  create: ReservedDomainCreate,
  update: ReservedDomainUpdate,
  answer: ReservedDomain,
  filters: ReservedDomainFilters,
});

const CONFIGURATION_TYPE = 'The protocol for which domains refer to it. It cannot be changed later.';

export const EndpointConfigurationCreate = body({
  ...annotations(),
  type: z.enum(['http', 'https', 'tcp']).describe(CONFIGURATION_TYPE),
});
export type EndpointConfigurationCreate = z.input<typeof EndpointConfigurationCreate>;

export const EndpointConfigurationUpdate = body(annotations());
export type EndpointConfigurationUpdate = z.input<typeof EndpointConfigurationUpdate>;

export const EndpointConfiguration = z
  .object({
    ...COMMON_ANSWER,
    ...ANNOTATIONS_ANSWER,
    type: z.string().describe(CONFIGURATION_TYPE),
  })
  .describe('A configuration that reserved domains reference in `http_` and `https_endpoint_configuration`.');
export type EndpointConfiguration = z.output<typeof EndpointConfiguration>;

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
  name: z.string().describe('The name of the record, for example `*.sitea.example.com`.'),
  target: orNull(z.string()).describe(
    "The target of the CNAME record; null where an address suffices, below the gateway's own domain.",
  ),
  purpose: z
    .enum(['traffic', 'certificate'])
    .describe('`traffic` leads clients to the gateway, `certificate` lets it get the certificate.'),
  in_place: z.boolean().describe('Whether DNS has the record.'),
  found: z.string().describe('What DNS has there, in words.'),
});
export type DnsRecordCheck = z.output<typeof DnsRecordCheck>;

export const DnsCheck = z
  .object({
    checked_at: z.string().describe(`When DNS was asked. ${UTC}`),
    records: z
      .array(DnsRecordCheck)
      .describe("The records that the domain needs; empty where the gateway's names need no DNS: below localhost."),
  })
  .describe('What DNS has for a reserved domain, as the gateway sees it.');
export type DnsCheck = z.output<typeof DnsCheck>;
