import { z } from 'zod';
import { refused, WRONG_VALUE } from './refusal.ts';
import {
  annotations,
  body,
  COMMON_ANSWER,
  DeviceRef,
  defineResource,
  labelFilter,
  listFilters,
  NO_REGION,
  orNull,
  Ref,
  siteFilter,
  UTC,
} from './resource.ts';

const url = z.string(refused(18015, 'is missing or not a string')).max(1024, refused(18001, 'is too long'));
const trafficPolicy = z
  .string(refused(18011, 'is missing or not a string'))
  .describe('A traffic policy as JSON or YAML.');
const bindings = z
  .array(z.string())
  .max(2)
  .optional()
  .describe('`["public"]` or `["internal"]`. Default: what the URL says.');
const POOLING = 'Whether other cloud endpoints may have the same URL; clients then take turns.';

export const EndpointCreate = body({
  ...annotations(18012, 18013),
  type: z
    .literal('cloud', refused(18014, 'must be cloud: all others come online when agents bind them'))
    .default('cloud')
    .describe('Only cloud endpoints can be created here.'),
  url: url.describe(
    'For example `https://app.example.com`, `https://*.example.com`, `https://app.internal` or `tcp://`, which gets a free port.',
  ),
  bindings,
  traffic_policy: trafficPolicy,
  pooling_enabled: z.boolean().default(false).describe(POOLING),
});
export type EndpointCreate = z.input<typeof EndpointCreate>;

export const EndpointUpdate = body({
  ...annotations(18012, 18013),
  url: url
    .optional()
    .describe('The scheme cannot be changed. Another URL ends what clients of the old one have under way.'),
  bindings,
  traffic_policy: trafficPolicy.optional().describe('Applies to the next request; those under way go on.'),
  pooling_enabled: z.boolean().optional().describe(POOLING),
});
export type EndpointUpdate = z.input<typeof EndpointUpdate>;

/** What a list of endpoints can be limited to, and sorted by. */
export const EndpointFilters = listFilters(
  'id, URL, name, description, metadata or device',
  ['url', 'device', 'created_at'],
  {
    protocol: z
      .enum(['https', 'http', 'tls', 'tcp'], refused(WRONG_VALUE, 'must be https, http, tls or tcp'))
      .optional()
      .meta({ description: 'Only endpoints of this protocol.' }),
    type: z
      .enum(['ephemeral', 'edge', 'cloud'], refused(WRONG_VALUE, 'must be ephemeral, edge or cloud'))
      .optional()
      .meta({ description: 'Only endpoints of agents, of TLS edges, or without an agent.' }),
    site: siteFilter('endpoints of devices'),
    label: labelFilter('the device that has bound it'),
  },
);
export type EndpointFilters = z.output<typeof EndpointFilters>;

export const EndpointProbe = z.object({
  reached: z.boolean().describe('Whether a client would have got a response.'),
  stage: orNull(z.string()).describe(
    'What broke: `name` (DNS), `connection`, `certificate`, `policy`, `session` (of the agent) or `upstream`. Null: nothing.',
  ),
  message: orNull(z.string()).describe('Why, or what could not be tried. Null: nothing to say.'),
  checked_at: z.string().describe(`When it was asked last. ${UTC}`),
  since: z.string().describe(`Since when it is so. ${UTC}`),
});
export type EndpointProbe = z.output<typeof EndpointProbe>;

export const Endpoint = z
  .object({
    ...COMMON_ANSWER,
    created_at: z.string().describe(`Since when it is online; of a cloud endpoint: when it was created. ${UTC}`),
    updated_at: z.string().optional().describe(`When it was last changed. ${UTC}`),
    type: z.string().describe('`ephemeral` (bound by an agent), `edge` or `cloud`.'),
    proto: z.string().describe('`http`, `https`, `tcp` or `tls`.'),
    scheme: z.string().optional().describe('The same as `proto`.'),
    hostport: z.string().optional().describe('`<host>:<port>` of the URL.'),
    host: z.string().optional().describe('The hostname of the URL; may be a wildcard.'),
    port: z.int().optional().describe('The port of the URL, also where the URL leaves it out.'),
    url: z.string().optional().describe('Where clients reach it.'),
    public_url: z.string().optional().describe('Deprecated alias of `url`.'),
    domain_url: z
      .string()
      .optional()
      .describe(
        "Where clients reach it besides, by a name of the gateway's domain, if its URL is a port of the gateway's address. Not in ngrok's API.",
      ),
    region: z.string().optional().describe(NO_REGION),
    metadata: z.string().optional().describe('A text for programs, from the agent or the request that created it.'),
    description: z.string().optional().describe('A text for people, from the agent or the request that created it.'),
    name: z.string().optional().describe('The name that its agent gives it.'),
    domain: Ref.optional().describe('The reserved domain that has its hostname.'),
    tcp_addr: Ref.optional().describe('The reserved address that has its port.'),
    tunnel: Ref.optional().describe('The tunnel that has bound it.'),
    tunnel_session: Ref.optional().describe('The session of that tunnel.'),
    edge: Ref.optional().describe('The TLS edge that it belongs to.'),
    principal: Ref.optional().describe('The bot user that owns the authtoken of its agent.'),
    device: DeviceRef.optional().describe('The device that has bound it.'),
    bindings: z
      .array(z.string())
      .optional()
      .describe('`["public"]`, or `["internal"]`: reached only by traffic policies.'),
    upstream_url: z.string().optional().describe('Where its agent sends the traffic, as the agent says.'),
    pooling_enabled: z
      .boolean()
      .optional()
      .describe('Whether other endpoints may have the same URL; clients then take turns.'),
    traffic_policy: z.string().optional().describe('Of cloud endpoints.'),
    access: z
      .array(z.string())
      .optional()
      .describe(
        "How clients come in, each way in turn: `everyone`, `addresses`, `certificate`, `password`, `sign-in`, `token`, `link`; `or-link`: a share link instead of those; `policy`: rules with expressions decide. Not in ngrok's API.",
      ),
    people: z
      .object({
        everyone: z.boolean().describe('Whether all people of the gateway may sign in.'),
        emails: z.array(z.string()).describe('Email addresses of people who may sign in.'),
        groups: z.array(z.string()).describe('Groups whose members may sign in.'),
      })
      .optional()
      .describe(
        "Which people of the gateway may sign in, by the action `gateway-sign-in` of its policy: all of them, or those on either list. Other rules may let in fewer. Not in ngrok's API.",
      ),
    probe: EndpointProbe.optional().describe(
      "What a gateway has found that asks this endpoint as clients do, whichever of several that was; missing: none has. Not in ngrok's API.",
    ),
    policy_warnings: z
      .array(z.string())
      .optional()
      .describe(
        "What is valid in the policy that was sent but probably a mistake, such as a person whom the gateway does not have. Only in the answer to that request. Not in ngrok's API.",
      ),
  })
  .describe(
    'A URL that is online: bound by an agent, of a TLS edge, or a cloud endpoint. Members that do not apply are missing.',
  );
export type Endpoint = z.output<typeof Endpoint>;

export const endpoints = defineResource({
  name: 'endpoint',
  label: 'Cloud endpoint',
  path: '/endpoints',
  idPrefix: 'ep_',
  table: 'cloud_endpoints',
  create: EndpointCreate,
  update: EndpointUpdate,
  answer: Endpoint,
  filters: EndpointFilters,
});
