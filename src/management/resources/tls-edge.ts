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
  defineResource,
  idOf,
  orNull,
  parsed,
  Ref,
} from './resource.ts';

/** Modules are enabled by default. */
const enabled = z.boolean().default(true);

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
    .regex(/^bkd(hr|tg)_/, refused(6527, 'must name an http_response or a tunnel_group backend')),
});
export interface BackendModuleBody extends z.input<typeof BackendModuleBody> {}

export const IpRestrictionModuleBody = body({
  enabled,
  ip_policy_ids: z
    .array(idOf(['ipp_'], 229))
    .min(1, refused(7025, 'name at least one IP policy'))
    .max(MAX_IP_POLICIES, refused(7013, `more than ${MAX_IP_POLICIES} IP policies`))
    .refine(areDistinct, ONCE),
});
export interface IpRestrictionModuleBody extends z.input<typeof IpRestrictionModuleBody> {}

export const MutualTlsModuleBody = body({
  enabled,
  certificate_authority_ids: z
    .array(idOf(['ca_'], 228))
    .min(1, refused(WRONG_VALUE, 'name at least one certificate authority'))
    .max(MAX_AUTHORITIES, refused(7075, `more than ${MAX_AUTHORITIES} certificate authorities`))
    .refine(areDistinct, ONCE),
});
export interface MutualTlsModuleBody extends z.input<typeof MutualTlsModuleBody> {}

const TLS_VERSIONS = ['1.0', '1.1', '1.2', '1.3'] as const;

export const TlsTerminationModuleBody = body({
  enabled,
  terminate_at: z.enum(['edge', 'upstream'], refused(224, 'must be edge or upstream')).default('edge'),
  min_version: z.enum(TLS_VERSIONS, refused(219, `must be one of ${TLS_VERSIONS.join(', ')}`)).optional(),
}).refine((module) => module.terminate_at === 'edge' || module.min_version === undefined, {
  error: refused(1632, 'min_version requires termination at the edge'),
});
export interface TlsTerminationModuleBody extends z.input<typeof TlsTerminationModuleBody> {
  /** `upstream` passes TLS through. Default: `edge`. */
  terminate_at?: 'edge' | 'upstream' | undefined;
  /** Only with termination at the edge. Default: 1.2. */
  min_version?: (typeof TLS_VERSIONS)[number] | undefined;
}

/** The traffic policy engine checks the document in `value`. */
export const TrafficPolicyModuleBody = body({ enabled, value: z.string() });
export interface TrafficPolicyModuleBody extends z.input<typeof TrafficPolicyModuleBody> {
  /** A traffic policy as JSON or YAML. */
  value: string;
}

const members = {
  ...annotations(7073, 7074),
  hostports: z
    .array(parsed(parseHostport, 7104, HOSTPORT_PATTERN))
    .max(MAX_HOSTPORTS, refused(7129, `more than ${MAX_HOSTPORTS} hostports`))
    .refine(areDistinct, ONCE)
    .optional(),
  backend: BackendModuleBody.optional(),
  ip_restriction: IpRestrictionModuleBody.optional(),
  mutual_tls: MutualTlsModuleBody.optional(),
  tls_termination: TlsTerminationModuleBody.optional(),
  traffic_policy: TrafficPolicyModuleBody.optional(),
};

export const TlsEdgeCreate = body(members);
export interface TlsEdgeCreate extends z.input<typeof TlsEdgeCreate> {
  /** For example `cam.example.com:443`; the host may be a wildcard. */
  hostports?: string[] | undefined;
  /** Where the traffic goes. */
  backend?: BackendModuleBody | undefined;
  /** The allowed client addresses. */
  ip_restriction?: IpRestrictionModuleBody | undefined;
  /** The required client certificates. */
  mutual_tls?: MutualTlsModuleBody | undefined;
  /** Where TLS is terminated, and the minimum version; without it, TLS passes through. */
  tls_termination?: TlsTerminationModuleBody | undefined;
  traffic_policy?: TrafficPolicyModuleBody | undefined;
}

/** A module in the request replaces the stored one completely; others stay. Modules cannot be removed. */
export const TlsEdgeUpdate = TlsEdgeCreate;
export interface TlsEdgeUpdate extends TlsEdgeCreate {}

/** Checks the modules of the changed edge together: with termination upstream, the edge sees no client certificate. */
export function terminationConflict(edge: {
  tls_termination: { terminate_at: string } | null;
  mutual_tls: { enabled: boolean } | null;
}): Refusal | null {
  if (edge.tls_termination?.terminate_at !== 'upstream' || !edge.mutual_tls?.enabled) return null;
  return { code: 7062, text: 'mutual_tls requires termination at the edge, but tls_termination is set to upstream' };
}

export const BackendModule = z.object({ enabled: z.boolean(), backend: Ref });
export interface BackendModule extends z.output<typeof BackendModule> {}

export const IpRestrictionModule = z.object({ enabled: z.boolean(), ip_policies: z.array(Ref) });
export interface IpRestrictionModule extends z.output<typeof IpRestrictionModule> {}

export const MutualTlsModule = z.object({ enabled: z.boolean(), certificate_authorities: z.array(Ref) });
export interface MutualTlsModule extends z.output<typeof MutualTlsModule> {}

export const TlsTerminationModule = z.object({
  enabled: z.boolean(),
  terminate_at: z.string(),
  min_version: orNull(z.string()),
});
export interface TlsTerminationModule extends z.output<typeof TlsTerminationModule> {}

export const TrafficPolicyModule = z.object({ enabled: z.boolean(), value: z.string() });
export interface TrafficPolicyModule extends z.output<typeof TrafficPolicyModule> {}

/** A set of hostports, and how TLS traffic to them is handled. */
export const TlsEdge = z.object({
  ...COMMON_ANSWER,
  ...ANNOTATIONS_ANSWER,
  hostports: orNull(z.array(z.string())),
  backend: orNull(BackendModule),
  ip_restriction: orNull(IpRestrictionModule),
  mutual_tls: orNull(MutualTlsModule),
  tls_termination: orNull(TlsTerminationModule),
  traffic_policy: orNull(TrafficPolicyModule),
  policy: alwaysNull,
});
export interface TlsEdge extends z.output<typeof TlsEdge> {
  /** `<host>:<port>`, in the order of the request; null when never set. */
  hostports: string[] | null;
}

export const tlsEdges = defineResource({
  name: 'TLS edge',
  path: '/edges/tls',
  idPrefix: 'edgtls_',
  table: 'tls_edges',
  listKey: 'tls_edges',
  unknownIdCode: 7000,
  create: TlsEdgeCreate,
  update: TlsEdgeUpdate,
  answer: TlsEdge,
});

/** The modules of an edge. The key is the member of the edge and the last part of the module's path. */
export const tlsEdgeModules = {
  backend: { body: BackendModuleBody, answer: BackendModule },
  ip_restriction: { body: IpRestrictionModuleBody, answer: IpRestrictionModule },
  mutual_tls: { body: MutualTlsModuleBody, answer: MutualTlsModule },
  tls_termination: { body: TlsTerminationModuleBody, answer: TlsTerminationModule },
  traffic_policy: { body: TrafficPolicyModuleBody, answer: TrafficPolicyModule },
};
export type TlsEdgeModuleName = keyof typeof tlsEdgeModules;
