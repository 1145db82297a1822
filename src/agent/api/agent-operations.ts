import { z } from 'zod';
import { EndpointOptions, TLS_VERSIONS, TUNNEL_PROTOCOLS } from '../connectors/connector.ts';
import { SHOWN_STATES, TunnelChange, TunnelRequest } from '../tunnels/tunnel.ts';
import { UPSTREAM_STATES } from '../upstreams/upstream-health.ts';
import { type ApiRoute, querySchema } from './agent-routes.ts';
import { Count, LastError, StatusReport } from './status-report.ts';

/** Statuses of errors, and what they mean here. */
export const ERRORS = {
  400: 'The request is not valid, or its upstream or policy is not allowed.',
  401: 'The API token is missing or wrong.',
  403: 'The local API refuses the host, the site or the proxy; or the gateway refuses the domain.',
  404: 'No such tunnel, request or share link.',
  409: 'The domain is in use, several tunnels match, the request cannot be replayed, or the tunnel takes no share links.',
  413: 'The body is larger than 256 KiB.',
  415: 'The body is not declared as JSON.',
  429: 'Too many wrong API tokens; Retry-After says when to retry.',
  500: 'An internal error, or the change could not be written to the disk.',
  501: 'The gateway does not support the protocol, or share links.',
  502: 'The gateway refused the tunnel.',
  503: 'Not ready, or no session with the gateway; Retry-After says when to retry.',
};

/** A documented route. Its key in a table is its `operationId`. */
export interface AgentOperation extends ApiRoute {
  summary: string;
  query?: z.ZodObject;
  examples?: Readonly<Record<string, z.input<typeof TunnelRequest>>>;
  /** Operations on what this one created. */
  links?: readonly string[];
  /** Statuses besides those that every operation can answer. */
  errors?: readonly (keyof typeof ERRORS)[];
}

export type Operations = Readonly<Record<string, AgentOperation>>;

/** An option in an answer, where it is left out when it was not sent. */
function asSent<T extends z.ZodType>(option: keyof EndpointOptions, schema: T) {
  return schema.optional().describe(EndpointOptions.shape[option].description ?? '');
}

const TunnelMembers = z.object({
  url: z.string().describe('Where clients reach the tunnel.'),
  protocol: z.string().describe('`http`, `tcp` or `tls`.'),
  forwards_to: z.string().describe('The upstream, in canonical form.'),
  domain: z.string().describe('The hostname of the tunnel, for tcp `host:port`; it stays the same after a restart.'),
  binding: asSent('binding', z.enum(['public', 'internal'])),
  app_protocol: asSent('app_protocol', z.enum(['http1', 'http2'])),
  pooling: asSent('pooling', z.literal(true)),
  metadata: asSent('metadata', z.string()),
  proxy_proto: asSent('proxy_proto', z.enum(['1', '2'])),
  max_connections: asSent('max_connections', z.int()),
  response_timeout: asSent('response_timeout', z.string()),
  host_header: asSent('host_header', z.string()),
  rewrite_redirects: asSent('rewrite_redirects', z.boolean()),
  bandwidth: asSent('bandwidth', z.string()),
  upstream_tls_verify: asSent('upstream_tls_verify', z.boolean()),
  upstream_tls_ca_file: asSent('upstream_tls_ca_file', z.string()),
  upstream_tls_server_name: asSent('upstream_tls_server_name', z.string()),
  upstream_tls_min_version: asSent('upstream_tls_min_version', z.enum(TLS_VERSIONS)),
});

/** A tunnel in the answer to the request that created it; its policy as it was sent. */
export const CreatedTunnel = TunnelMembers.extend({
  policy: z
    .record(z.string(), z.unknown())
    .nullable()
    .describe('The traffic policy as it was sent; null: the default policies apply.'),
  notice: z
    .string()
    .optional()
    .describe('Why the domain is not the one that was asked for, or why the upstream will not work.'),
});
export type CreatedTunnel = z.infer<typeof CreatedTunnel>;

/** Whether the upstream accepts connections, as of the last connection of a client or a check. */
const UpstreamReport = z.object({
  state: z
    .enum(UPSTREAM_STATES)
    .describe(
      '`refused`: nothing listens there; `wrong_protocol`: it does not speak HTTP/1.1, or its response was invalid; `hangs`: it does not close connections that clients have left; `unknown`: not checked yet.',
    ),
  since: z.iso.datetime().nullable().describe('When it changed to this state; null while it is not known.'),
  checked_at: z.iso
    .datetime()
    .nullable()
    .describe("The time of the last connection, a client's or a check; null before the first."),
  reason: z
    .string()
    .nullable()
    .describe(
      'Why that connection failed, what the upstream speaks instead, or what was wrong with its response; null otherwise.',
    ),
});

/**
 * Since the start of the agent. Null when connections bypass it, as those of the SDK to addresses and localhost do, unless
 * the embedded gateway counts them, since the tunnel came online.
 */
const TrafficReport = z
  .object({
    connections: Count.nullable().describe('Connections to the upstream; null where only the gateway counts.'),
    requests: Count.describe('HTTP requests; for tcp and tls, connections.'),
    bytes_in: Count.describe('Bytes from clients.'),
    bytes_out: Count.describe('Bytes to clients.'),
    last_at: z.iso.datetime().nullable().describe('The time of the last traffic; null before the first.'),
  })
  .nullable();

/** A tunnel in a list: its policy is the one in force, as a JSON string. */
export const ListedTunnel = TunnelMembers.extend({
  domain_url: z
    .string()
    .optional()
    .describe(
      "Where clients reach it besides, by a name of the gateway's domain, if its URL is a port of the gateway's address; with the native connector.",
    ),
  url_part: z.string().describe('What names the tunnel in paths: the first label of its URL where that is enough.'),
  policy: z.string().describe('The policy in force, as a JSON string.'),
  status: z
    .enum(SHOWN_STATES)
    .describe(
      '`degraded`: online, but the upstream does not work; `connecting`: not bound yet in this session; `offline`: the session is lost; `failed`: the gateway has refused it, and the agent retries.',
    ),
  since: z.iso.datetime().describe('When it changed to this status.'),
  last_error: LastError.describe(
    "Why the last attempt failed, or what is wrong with a degraded tunnel's upstream; null otherwise.",
  ),
  policy_warnings: z
    .array(z.string())
    .optional()
    .describe(
      'What is valid in its policy but probably a mistake; with the embedded gateway and the native connector.',
    ),
  upstream: UpstreamReport.describe('Whether the upstream accepts connections.'),
  traffic: TrafficReport.describe(
    'What has passed since the start of the agent; null when connections bypass it and nobody else counts them.',
  ),
});
export type ListedTunnel = z.infer<typeof ListedTunnel>;

export const TunnelDetail = ListedTunnel.extend({
  created_at: z.string().describe('When it was created. RFC 3339, UTC.'),
});
export type TunnelDetail = z.infer<typeof TunnelDetail>;

const HistoryTime = z.object({
  at: z.string().describe('When the ten minutes begin. RFC 3339, UTC.'),
  known_seconds: Count.describe('Seconds of them in which the agent ran: it knows nothing of the others.'),
});

const TunnelHistoryPoint = HistoryTime.extend({
  online_seconds: Count.describe('Seconds in which the tunnel was online, to the minute.'),
  requests: Count.describe('HTTP requests; for tcp and tls, connections.'),
  received_bytes: Count.describe('Bytes from clients.'),
  sent_bytes: Count.describe('Bytes to clients.'),
});

const Reading = z.number().nullable();
const DeviceHistoryPoint = HistoryTime.extend({
  online_seconds: Count.describe('Seconds in which there was a session with the gateway, to the minute.'),
  sessions: Count.describe('How often the session came online.'),
  temperature_celsius: Reading.describe('Of the processor; null where the system does not say.'),
  available_memory_bytes: Reading.describe('Memory that programs could use; null where the system does not say.'),
  available_disk_bytes: Reading.describe('What is free on the disk of `DATA_DIR`; null where it cannot be read.'),
  wireless_signal_dbm: Reading.describe('Of the wireless network; null without one.'),
});

const historyOf = <Point extends z.ZodType>(point: Point) =>
  z.object({
    from: z.string().describe('When the first point begins. RFC 3339, UTC.'),
    to: z.string().describe('Now. RFC 3339, UTC.'),
    step: z.literal('ten minutes').describe('The length of each point.'),
    points: z.array(point).describe('The last 24 hours, the oldest first.'),
  });

export const TUNNEL_OPERATIONS = {
  listTunnels: {
    method: 'get',
    path: '/tunnels',
    summary: 'List the tunnels, in order of creation',
    query: querySchema({ protocol: z.enum(TUNNEL_PROTOCOLS).optional().describe('Only tunnels of this protocol.') }),
    answer: z.array(ListedTunnel),
  },
  startTunnel: {
    method: 'post',
    path: '/tunnels',
    summary: 'Start a tunnel and persist it',
    body: TunnelRequest,
    examples: {
      http: { forwards_to: 8080 },
      tls: { protocol: 'tls', forwards_to: 'localhost:8443' },
      internal: { forwards_to: 8080, domain: 'camera.internal', binding: 'internal', metadata: 'hall 3' },
      policy: { forwards_to: 'http://192.168.1.10', policy: { on_http_request: [{ actions: [{ type: 'deny' }] }] } },
    },
    answer: CreatedTunnel,
    links: ['getTunnel', 'deleteTunnel'],
    errors: [409, 413, 415, 501, 502, 503],
  },
  getTunnel: {
    method: 'get',
    path: '/tunnels/{url_part}',
    summary: 'Show a tunnel with its status',
    answer: TunnelDetail,
    errors: [404, 409],
  },
  changeTunnel: {
    method: 'patch',
    path: '/tunnels/{url_part}',
    summary: 'Change the policy or the upstream of a tunnel',
    body: TunnelChange,
    answer: TunnelDetail,
    errors: [404, 409, 413, 415, 502, 503],
  },
  deleteTunnel: {
    method: 'delete',
    path: '/tunnels/{url_part}',
    summary: 'Close a tunnel and delete it',
    answer: null,
    errors: [404, 409],
  },
  getTunnelHistory: {
    method: 'get',
    path: '/tunnels/{url_part}/history',
    summary: 'Show what has happened to a tunnel in the last 24 hours, as far as this device has counted it',
    answer: historyOf(TunnelHistoryPoint),
    errors: [404, 409],
  },
} as const satisfies Operations;

/** The longest life of a share link, in seconds. */
const MAX_SHARE_S = 90 * 86_400;

const ShareLinkRequest = z.strictObject({
  expires_in: z.int().min(1).max(MAX_SHARE_S).describe('Seconds until it ends.'),
  max_uses: z.int().min(1).max(1_000_000).optional().describe('Browsers that can open it; default: any.'),
  description: z.string().max(255).optional().describe('Whom it is for, at most 255 characters.'),
  protect: z
    .boolean()
    .default(false)
    .describe("Whether to change the tunnel's policy first if it takes no share links."),
});
export type ShareLinkRequest = z.output<typeof ShareLinkRequest>;

/** Lets browsers in at a tunnel; the gateway keeps it. */
export const TunnelShareLink = z.object({
  id: z.string().describe('Its id at the gateway.'),
  url: z.string().describe('The URL of the tunnel that it opens.'),
  link: z.string().nullable().describe('The link itself: only in the answer to its creation, null afterwards.'),
  created_at: z.string().describe('When it was created. RFC 3339, UTC.'),
  expires_at: z.string().describe('When it ends. RFC 3339, UTC.'),
  max_uses: z.int().nullable().describe('How many browsers can open it; null: any number.'),
  uses: z.int().describe('How many browsers have opened it.'),
  last_used_at: z.string().nullable().describe('When a browser last opened it; null: never.'),
  description: z.string().nullable().describe('Whom it is for; null when nobody said.'),
  created_by: z
    .string()
    .describe(
      "Who made it: the id of an authtoken, an API key or a person, or `gateway` for a command on the gateway's machine.",
    ),
});
export type TunnelShareLink = z.infer<typeof TunnelShareLink>;

export const SHARE_LINK_OPERATIONS = {
  listShareLinks: {
    method: 'get',
    path: '/share_links',
    summary: 'List the share links to tunnels that are online, newest first',
    answer: z.array(TunnelShareLink),
    errors: [501, 502, 503],
  },
  createShareLink: {
    method: 'post',
    path: '/tunnels/{url_part}/share_links',
    summary: 'Make a link that lets browsers in at a tunnel',
    body: ShareLinkRequest,
    answer: TunnelShareLink,
    errors: [404, 409, 413, 415, 501, 502, 503],
  },
  revokeShareLink: {
    method: 'delete',
    path: '/share_links/{id}',
    summary: 'Revoke a share link',
    answer: null,
    errors: [404, 501, 502, 503],
  },
} as const satisfies Operations;

/** Served without a token. */
export const LIVENESS_OPERATIONS = {
  getLiveness: {
    method: 'get',
    path: '/healthz',
    summary: 'Check that the process answers',
    answer: z.object({ status: z.literal('alive').describe('The process answers.') }),
  },
} as const satisfies Operations;

export const HEALTH_OPERATIONS = {
  getReadiness: {
    method: 'get',
    path: '/readyz',
    summary: 'Check that the session and all tunnels are online',
    answer: z.object({ status: z.literal('ready').describe('The session and all tunnels are online.') }),
    errors: [503],
  },
  getStatus: { method: 'get', path: '/status', summary: 'Show the status of the agent', answer: StatusReport },
  getHistory: {
    method: 'get',
    path: '/history',
    summary: 'Show how the device was in the last 24 hours',
    answer: historyOf(DeviceHistoryPoint),
  },
  getMetrics: { method: 'get', path: '/metrics', summary: 'Metrics for Prometheus', answer: 'text/plain' },
  getOpenApi: {
    method: 'get',
    path: '/openapi.json',
    summary: 'This document',
    answer: z.record(z.string(), z.unknown()),
  },
} as const satisfies Operations;
