import { z } from 'zod';
import { refused } from './refusal.ts';
import { annotations, body, DeviceRef, defineResource, Ref } from './resource.ts';

const url = z.string(refused(18015, 'is missing or not a string')).max(1024, refused(18001, 'is too long'));
const trafficPolicy = z.string(refused(18011, 'is missing or not a string'));
const bindings = z.array(z.string()).max(2).optional();

export const EndpointCreate = body({
  ...annotations(18012, 18013),
  type: z
    .literal('cloud', refused(18014, 'must be cloud: all others come online when agents bind them'))
    .default('cloud'),
  url,
  bindings,
  traffic_policy: trafficPolicy,
  pooling_enabled: z.boolean().default(false),
});
export interface EndpointCreate extends z.input<typeof EndpointCreate> {
  /** Default: `cloud`. */
  type?: 'cloud' | undefined;
  /** For example `https://app.example.com`, `https://*.example.com`, `https://app.internal` or `tcp://`, which gets a free port. */
  url: string;
  /** `["public"]` or `["internal"]`. Default: what the URL says. */
  bindings?: string[] | undefined;
  /** A traffic policy as JSON or YAML. */
  traffic_policy: string;
  /** Whether other cloud endpoints may have the same URL; clients then take turns. Default: false. */
  pooling_enabled?: boolean | undefined;
}

export const EndpointUpdate = body({
  ...annotations(18012, 18013),
  url: url.optional(),
  bindings,
  traffic_policy: trafficPolicy.optional(),
  pooling_enabled: z.boolean().optional(),
});
export interface EndpointUpdate extends z.input<typeof EndpointUpdate> {
  /** The scheme cannot be changed. Another URL ends what clients of the old one have under way. */
  url?: string | undefined;
  /** Applies to the next request; those under way go on. */
  traffic_policy?: string | undefined;
}

/** A URL that is online: bound by an agent, of a TLS edge, or a cloud endpoint. Members that do not apply are missing. */
export const Endpoint = z.object({
  id: z.string(),
  uri: z.string(),
  created_at: z.string(),
  updated_at: z.string().optional(),
  type: z.string(),
  proto: z.string(),
  scheme: z.string().optional(),
  hostport: z.string().optional(),
  host: z.string().optional(),
  port: z.int().optional(),
  url: z.string().optional(),
  public_url: z.string().optional(),
  region: z.string().optional(),
  metadata: z.string().optional(),
  description: z.string().optional(),
  name: z.string().optional(),
  domain: Ref.optional(),
  tcp_addr: Ref.optional(),
  tunnel: Ref.optional(),
  tunnel_session: Ref.optional(),
  edge: Ref.optional(),
  principal: Ref.optional(),
  device: DeviceRef.optional(),
  bindings: z.array(z.string()).optional(),
  upstream_url: z.string().optional(),
  pooling_enabled: z.boolean().optional(),
  traffic_policy: z.string().optional(),
  access: z.array(z.string()).optional(),
  people: z.object({ everyone: z.boolean(), emails: z.array(z.string()), groups: z.array(z.string()) }).optional(),
  policy_warnings: z.array(z.string()).optional(),
});
export interface Endpoint extends z.output<typeof Endpoint> {
  /** `ephemeral` (bound by an agent), `edge` or `cloud`. */
  type: string;
  /** Deprecated alias of `url`. */
  public_url?: string | undefined;
  principal?: Ref | undefined;
  /** The device that has bound it. */
  device?: z.output<typeof DeviceRef> | undefined;
  /** Of cloud endpoints. */
  traffic_policy?: string | undefined;
  /**
   * How clients come in, each way in turn: `everyone`, `addresses`, `certificate`, `password`, `sign-in`, `token`, `link`;
   * `or-link`: a share link instead of those; `policy`: rules with expressions decide. Not in ngrok's API.
   */
  access?: string[] | undefined;
  /**
   * Which people of the gateway may sign in, by the action `gateway-sign-in` of its policy: all of them, or those on either
   * list. Other rules may let in fewer. Not in ngrok's API.
   */
  people?: { everyone: boolean; emails: string[]; groups: string[] } | undefined;
  /**
   * What is valid in the policy that was sent but probably a mistake, such as a person whom the gateway does not have. Only in the
   * answer to that request. Not in ngrok's API.
   */
  policy_warnings?: string[] | undefined;
}

export const endpoints = defineResource({
  name: 'endpoint',
  label: 'Cloud endpoint',
  path: '/endpoints',
  idPrefix: 'ep_',
  table: 'cloud_endpoints',
  create: EndpointCreate,
  update: EndpointUpdate,
  answer: Endpoint,
});
