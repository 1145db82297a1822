import { z } from 'zod';
import { HOSTPORT_PATTERN, parseHostport } from './hostname.ts';
import { type Refusal, refused, WRONG_VALUE } from './refusal.ts';
import {
  ANNOTATIONS_ANSWER,
  alwaysNull,
  annotations,
  areDistinct,
  body,
  COMMON_ANSWER,
  idOf,
  orNull,
  parsed,
  Ref,
} from './resource.ts';

/** Modules are enabled by default. */
const ENABLED = 'While false, the edge works as without this module, and keeps its members.';
const enabled = z.boolean().default(true).describe(ENABLED);
const isEnabled = z.boolean().describe(ENABLED);

const MAX_HOSTPORTS = 1000;
const MAX_IP_POLICIES = 100;
const MAX_AUTHORITIES = 10;

const ONCE = refused(WRONG_VALUE, 'a value occurs twice');

const MALFORMED_BACKEND = refused(242, 'must be the id of a backend');

export const BackendModuleBody = body({
  enabled,
  backend_id: z
    .string(MALFORMED_BACKEND)
    .regex(/^bkd[a-z]+_[0-9A-Za-z]{1,27}$/, MALFORMED_BACKEND)
    .regex(/^bkd(hr|tg)_/, refused(6527, 'must name an http_response or a tunnel_group backend'))
    .describe('The id of an HTTP response or tunnel group backend.'),
});
export type BackendModuleBody = z.input<typeof BackendModuleBody>;

export const IpRestrictionModuleBody = body({
  enabled,
  ip_policy_ids: z
    .array(idOf(['ipp_'], 229))
    .min(1, refused(7025, 'name at least one IP policy'))
    .max(MAX_IP_POLICIES, refused(7013, `more than ${MAX_IP_POLICIES} IP policies`))
    .refine(areDistinct, ONCE)
    .describe(
      `The ids of at most ${MAX_IP_POLICIES} IP policies: only addresses that they allow, and none of them denies.`,
    ),
});
export type IpRestrictionModuleBody = z.input<typeof IpRestrictionModuleBody>;

export const MutualTlsModuleBody = body({
  enabled,
  certificate_authority_ids: z
    .array(idOf(['ca_'], 228))
    .min(1, refused(WRONG_VALUE, 'name at least one certificate authority'))
    .max(MAX_AUTHORITIES, refused(7075, `more than ${MAX_AUTHORITIES} certificate authorities`))
    .refine(areDistinct, ONCE)
    .describe(`The ids of at most ${MAX_AUTHORITIES} CAs; one of them must have signed the client's certificate.`),
});
export type MutualTlsModuleBody = z.input<typeof MutualTlsModuleBody>;

const TLS_VERSIONS = ['1.0', '1.1', '1.2', '1.3'] as const;

const TERMINATE_AT = 'Where TLS ends: `edge`, or `upstream`, which passes TLS through.';

export const TlsTerminationModuleBody = body({
  enabled,
  terminate_at: z
    .enum(['edge', 'upstream'], refused(224, 'must be edge or upstream'))
    .default('edge')
    .describe(TERMINATE_AT),
  min_version: z
    .enum(TLS_VERSIONS, refused(219, `must be one of ${TLS_VERSIONS.join(', ')}`))
    .optional()
    .describe('The lowest version of TLS. Only with termination at the edge. Default: 1.2.'),
}).refine((module) => module.terminate_at === 'edge' || module.min_version === undefined, {
  error: refused(1632, 'min_version requires termination at the edge'),
});
export type TlsTerminationModuleBody = z.input<typeof TlsTerminationModuleBody>;

const POLICY = 'A traffic policy as JSON or YAML.';

/** The traffic policy engine checks the document in `value`. */
export const TrafficPolicyModuleBody = body({ enabled, value: z.string().describe(POLICY) });
export type TrafficPolicyModuleBody = z.input<typeof TrafficPolicyModuleBody>;

const MODULES = {
  backend: 'Where the traffic goes.',
  ip_restriction: 'The allowed client addresses.',
  mutual_tls: 'The required client certificates.',
  tls_termination: 'Where TLS is terminated, and the minimum version; without it, TLS passes through.',
  traffic_policy: 'The traffic policy of the edge.',
};

const members = {
  ...annotations(7073, 7074),
  hostports: z
    .array(parsed(parseHostport, 7104, HOSTPORT_PATTERN))
    .max(MAX_HOSTPORTS, refused(7129, `more than ${MAX_HOSTPORTS} hostports`))
    .refine(areDistinct, ONCE)
    .optional()
    .describe(`For example \`cam.example.com:443\`; the host may be a wildcard. At most ${MAX_HOSTPORTS}.`),
  backend: BackendModuleBody.optional().describe(MODULES.backend),
  ip_restriction: IpRestrictionModuleBody.optional().describe(MODULES.ip_restriction),
  mutual_tls: MutualTlsModuleBody.optional().describe(MODULES.mutual_tls),
  tls_termination: TlsTerminationModuleBody.optional().describe(MODULES.tls_termination),
  traffic_policy: TrafficPolicyModuleBody.optional().describe(MODULES.traffic_policy),
};

export const TlsEdgeCreate = body(members);
export type TlsEdgeCreate = z.input<typeof TlsEdgeCreate>;

/** A module in the request replaces the stored one completely; others stay. Modules cannot be removed. */
export const TlsEdgeUpdate = TlsEdgeCreate;
export type TlsEdgeUpdate = TlsEdgeCreate;

/** Checks the modules of the changed edge together: with termination upstream, the edge sees no client certificate. */
export function terminationConflict(edge: {
  tls_termination: { terminate_at: string } | null;
  mutual_tls: { enabled: boolean } | null;
}): Refusal | null {
  if (edge.tls_termination?.terminate_at !== 'upstream' || !edge.mutual_tls?.enabled) return null;
  return { code: 7062, text: 'mutual_tls requires termination at the edge, but tls_termination is set to upstream' };
}

export const BackendModule = z
  .object({
    enabled: isEnabled,
    backend: Ref.describe('The backend that gets the traffic.'),
  })
  .describe(MODULES.backend);
export type BackendModule = z.output<typeof BackendModule>;

export const IpRestrictionModule = z
  .object({
    enabled: isEnabled,
    ip_policies: z.array(Ref).describe('Only addresses that these IP policies allow, and none of them denies.'),
  })
  .describe(MODULES.ip_restriction);
export type IpRestrictionModule = z.output<typeof IpRestrictionModule>;

export const MutualTlsModule = z
  .object({
    enabled: isEnabled,
    certificate_authorities: z.array(Ref).describe("The CAs, one of which must have signed the client's certificate."),
  })
  .describe(MODULES.mutual_tls);
export type MutualTlsModule = z.output<typeof MutualTlsModule>;

export const TlsTerminationModule = z
  .object({
    enabled: isEnabled,
    terminate_at: z.string().describe(TERMINATE_AT),
    min_version: orNull(z.string()).describe('The lowest version of TLS; null: 1.2, or TLS is passed through.'),
  })
  .describe(MODULES.tls_termination);
export type TlsTerminationModule = z.output<typeof TlsTerminationModule>;

export const TrafficPolicyModule = z
  .object({ enabled: isEnabled, value: z.string().describe(POLICY) })
  .describe(MODULES.traffic_policy);
export type TrafficPolicyModule = z.output<typeof TrafficPolicyModule>;

const WITHOUT = 'Null without this module.';

export const TlsEdge = z
  .object({
    ...COMMON_ANSWER,
    ...ANNOTATIONS_ANSWER,
    hostports: orNull(z.array(z.string())).describe(
      '`<host>:<port>`, in the order of the request; null when never set.',
    ),
    backend: orNull(BackendModule).describe(`${MODULES.backend} ${WITHOUT}`),
    ip_restriction: orNull(IpRestrictionModule).describe(`${MODULES.ip_restriction} ${WITHOUT}`),
    mutual_tls: orNull(MutualTlsModule).describe(`${MODULES.mutual_tls} ${WITHOUT}`),
    tls_termination: orNull(TlsTerminationModule).describe(`${MODULES.tls_termination} ${WITHOUT}`),
    traffic_policy: orNull(TrafficPolicyModule).describe(`${MODULES.traffic_policy} ${WITHOUT}`),
    policy: alwaysNull,
  })
  .describe('A set of hostports, and how TLS traffic to them is handled.');
export type TlsEdge = z.output<typeof TlsEdge>;

export const tlsEdges = {
  name: 'TLS edge',
  path: '/edges/tls',
  idPrefix: 'edgtls_',
  listKey: 'tls_edges',
  unknownIdCode: 7000,
  create: TlsEdgeCreate,
  update: TlsEdgeUpdate,
  answer: TlsEdge,
};

/** The modules of an edge. The key is the member of the edge and the last part of the module's path. */
export const tlsEdgeModules = {
  backend: { body: BackendModuleBody, answer: BackendModule },
  ip_restriction: { body: IpRestrictionModuleBody, answer: IpRestrictionModule },
  mutual_tls: { body: MutualTlsModuleBody, answer: MutualTlsModule },
  tls_termination: { body: TlsTerminationModuleBody, answer: TlsTerminationModule },
  traffic_policy: { body: TrafficPolicyModuleBody, answer: TrafficPolicyModule },
};
export type TlsEdgeModuleName = keyof typeof tlsEdgeModules;
