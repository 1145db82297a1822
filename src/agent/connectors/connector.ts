import type { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { isAbsolute } from 'node:path';
import { z } from 'zod';
import { BANDWIDTH_FORM, parseBandwidth } from '../../lib/bandwidth.ts';
import { messageOf } from '../../lib/errors.ts';
import { isAddressOfUrl } from '../../lib/network/ip-address.ts';
import { UpstreamConfig } from '../../traffic-policy/action-config.ts';
import type { TrafficPolicyDocument } from '../../traffic-policy/document.ts';

/** ngrok's limit, in bytes of UTF-8. */
const MAX_METADATA = 4096;

const PROXY_VERSIONS = { '1': '1', '2': '2' } as const;

/**
 * What the gateway does for the upstream of an http tunnel: the agent sends it as the action gateway-upstream, which ngrok's
 * network does not have. It can be changed later.
 */
export const UpstreamOptions = z.object({
  max_connections: UpstreamConfig.shape.max_connections
    .nullish()
    .transform(set)
    .optional()
    .describe('Connections to the upstream of an http tunnel at a time; further requests wait for one.'),
  host_header: UpstreamConfig.shape.host_header
    .nullish()
    .transform(set)
    .optional()
    .describe(
      'The Host that the upstream of an http tunnel gets: rewrite for its own address, or a name; by default, what clients ask for.',
    ),
  rewrite_redirects: UpstreamConfig.shape.rewrite_redirects
    .nullish()
    .transform(set)
    .optional()
    .describe('Whether redirects of an http upstream to its own address lead to the tunnel; true by default.'),
  response_timeout: z
    .string({ error: 'must be a duration such as 90s, 10m or 1h' })
    .superRefine((text, context) => {
      const { error } = UpstreamConfig.shape.response_timeout.safeParse(text);
      for (const { message } of error?.issues ?? []) context.addIssue({ code: 'custom', message });
    })
    .nullish()
    .transform(set)
    .optional()
    .describe('How long the upstream of an http tunnel may take to begin its response, such as 10m; 5m by default.'),
});
export type UpstreamOptions = z.output<typeof UpstreamOptions>;

/** Versions of TLS that an upstream may be allowed to speak; those below 1.2 are weak. */
export const TLS_VERSIONS = ['1.0', '1.1', '1.2', '1.3'] as const;
export type TlsVersion = (typeof TLS_VERSIONS)[number];

/** How the agent connects to the https upstream of a tunnel; the gateway does not learn it. It can be changed later. */
export const UpstreamTls = z.object({
  upstream_tls_verify: z
    .boolean({ error: 'must be true or false' })
    .nullish()
    .transform(set)
    .optional()
    .describe(
      'Whether the certificate of an https upstream is verified; by default, as AGENT_VERIFY_UPSTREAM_TLS says.',
    ),
  upstream_tls_ca_file: z
    .string({ error: 'must be an absolute path' })
    .refine((path) => isAbsolute(path) && !/\p{Cc}/u.test(path) && path.length <= 4096, 'must be an absolute path')
    .nullish()
    .transform(set)
    .optional()
    .describe(
      'File on this device with the CA certificates, as PEM, that an https upstream is verified with, instead of the usual ones.',
    ),
  upstream_tls_server_name: z
    .string({ error: 'must be a hostname or an IP address' })
    .max(253, 'must be a hostname or an IP address')
    .regex(/^(?:[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|[0-9a-f:]*:[0-9a-f:.]*)$/i, 'must be a hostname or an IP address')
    .nullish()
    .transform(set)
    .optional()
    .describe(
      "The name that an https upstream is asked for and that its certificate must have; by default, the upstream's host.",
    ),
  upstream_tls_min_version: z
    .enum(TLS_VERSIONS, { error: `must be one of ${TLS_VERSIONS.join(', ')}` })
    .nullish()
    .transform(set)
    .optional()
    .describe(
      'The lowest version of TLS that an https upstream may speak; 1.2 by default. 1.0 and 1.1 also allow the ciphers, keys and handshakes of old devices, and are weak.',
    ),
});
export type UpstreamTls = z.output<typeof UpstreamTls>;
export const UPSTREAM_TLS = Object.keys(UpstreamTls.shape) as readonly (keyof UpstreamTls)[];

/** What the agent lets pass through a tunnel of any protocol; the gateway does not learn it. It can be changed later. */
const TunnelLimits = z.object({
  bandwidth: z
    .string({ error: BANDWIDTH_FORM })
    .superRefine((text, context) => {
      try {
        parseBandwidth(text);
      } catch (error) {
        context.addIssue({ code: 'custom', message: messageOf(error) });
      }
    })
    .nullish()
    .transform(set)
    .optional()
    .describe(
      'How much may pass through the tunnel: 2Mbit in each direction, or up/down, to clients and from them, such as 512kbit/2Mbit or 512kbit/unlimited. Its connections share it. By default, any number.',
    ),
});

/** The options of a tunnel that can be changed later. */
export const ChangeableOptions = z.object({
  ...UpstreamOptions.shape,
  ...UpstreamTls.shape,
  ...TunnelLimits.shape,
});
/** Those that only tunnels for http have. */
export const HTTP_OPTIONS = Object.keys({ ...UpstreamOptions.shape, ...UpstreamTls.shape }) as readonly (
  | keyof UpstreamOptions
  | keyof UpstreamTls
)[];
export type ChangeableOptions = z.output<typeof ChangeableOptions>;
export const CHANGEABLE_OPTIONS = Object.keys(ChangeableOptions.shape) as readonly (keyof ChangeableOptions)[];

/** Those of a stored tunnel that are set. */
export function upstreamOptionsOf(tunnel: object): UpstreamOptions {
  return setIn(UpstreamOptions.safeParse(tunnel).data);
}

/** Those of a stored tunnel that are set. */
export function changeableOptionsOf(tunnel: object): ChangeableOptions {
  return setIn(ChangeableOptions.safeParse(tunnel).data);
}

function setIn<T extends object>(options: T | undefined): Partial<T> {
  return Object.fromEntries(Object.entries(options ?? {}).filter(([, value]) => value !== undefined)) as Partial<T>;
}

/** What an endpoint can ask for beside its address and its policy; members of `POST /tunnels`, where null counts as not sent. */
export const EndpointOptions = z.object({
  binding: z
    .enum(['public', 'internal'], { error: 'must be public or internal' })
    .nullish()
    .transform(set)
    .optional()
    .describe('internal: reached only by policies of other tunnels; needs a domain below .internal.'),
  app_protocol: z
    .enum(['http1', 'http2'], { error: 'must be http1 or http2' })
    .nullish()
    .transform(set)
    .optional()
    .describe('What the upstream of an http tunnel speaks; http2 from the first byte, as for gRPC.'),
  pooling: z
    .boolean({ error: 'must be true or false' })
    .nullish()
    .transform((pooling) => set(pooling || null))
    .optional()
    .describe('Shares the URL in turns with tunnels of other agents that also ask for it.'),
  metadata: z
    .string({ error: 'must be text' })
    .refine((text) => Buffer.byteLength(text) <= MAX_METADATA, `is longer than ${MAX_METADATA} bytes`)
    .nullish()
    .transform(set)
    .optional()
    .describe(`Text for programs, which the gateway lists; at most ${MAX_METADATA} bytes of UTF-8.`),
  proxy_proto: z
    .union([z.enum(['1', '2']), z.literal([1, 2])], { error: 'must be 1 or 2' })
    .nullish()
    .transform((version) => set(version && PROXY_VERSIONS[version]))
    .optional()
    .describe('Version of the PROXY header that starts each connection to the upstream.'),
  ...ChangeableOptions.shape,
});
export type EndpointOptions = z.output<typeof EndpointOptions>;

/** Those of a stored tunnel; empty when this version does not support them. */
export function optionsOf(tunnel: object): EndpointOptions {
  return EndpointOptions.safeParse(tunnel).data ?? {};
}

/** Whether connections to the upstream begin with a request of HTTP/1.1, so that the agent can read and send some. */
export function beginsWithHttp1({ protocol, ...options }: { protocol: string }): boolean {
  const { app_protocol, proxy_proto } = optionsOf(options);
  return protocol === 'http' && app_protocol !== 'http2' && proxy_proto === undefined;
}

function set<T>(value: T | null | undefined): T | undefined {
  return value ?? undefined;
}

export const TUNNEL_PROTOCOLS = ['http', 'tcp', 'tls'] as const;
export type TunnelProtocol = (typeof TUNNEL_PROTOCOLS)[number];

/** A side of a connection to an upstream. */
export type ConnectionEnd = 'client' | 'upstream';

/** Sees what one connection to an upstream carries. */
export interface ConnectionTraffic {
  fromClient(bytes: Buffer): void;
  toClient(bytes: Buffer): void;
  failed(error: unknown): void;
  /**
   * @param inOrder whether the upstream has sent its end, rather than that the connection broke
   * @param by who ended it first
   */
  closed(inOrder: boolean, by: ConnectionEnd): void;
}

/** The upstream accepts connections, but not as its tunnel needs them. */
export class UpstreamFault extends Error {
  /**
   * @param summary what clients may read, without names and addresses; completes "its upstream …"
   * @param advice what only the operator may read
   */
  constructor(
    readonly summary: string,
    readonly advice: string | null,
    options?: ErrorOptions,
  ) {
    super(advice === null ? summary : `${summary}: ${advice}`, options);
    this.name = 'UpstreamFault';
  }
}

/** Where an endpoint's connections go. */
export interface EndpointUpstream {
  /**
   * Makes one connection, which is checked; TLS is established where the upstream requires it.
   *
   * @throws {Error} with the reason when the upstream is unreachable or not allowed, an {@link UpstreamFault} for clients too
   */
  connect(): Promise<Socket>;
  /** Call this for each connection, with what it carries; omitted when nobody looks. */
  observeConnection?(): ConnectionTraffic;
  /**
   * Calls the listener with whether the agent can connect to the upstream, now and at each change; omitted when nobody looks.
   *
   * @returns ends it
   */
  watchReach?(listener: (isReachable: boolean) => void): () => void;
  /** The gateway has refused a response of the upstream to a client, and says what is wrong with it. */
  answerRefused?(reason: string): void;
  /**
   * The address for a connector whose SDK connects on its own: `http://…`, `tcp://host:port` or `unix:/path`.
   */
  address(): Promise<string>;
}

export interface EndpointRequest {
  protocol: TunnelProtocol;
  /** Hostname to bind, for tcp `host:port`; if left out, the gateway chooses. */
  domain?: string;
  upstream: EndpointUpstream;
  /** The upstream as the gateway displays it. */
  forwardsTo: string;
  /** The device's own API, which the last of its data budget is for. */
  isOwn?: boolean;
  /** In today's shape, already translated from the legacy one. */
  trafficPolicy?: TrafficPolicyDocument;
  options?: EndpointOptions;
}

/** The domain that keeps an endpoint at its URL: the URL's host, for tcp and an IP address with its port. */
export function domainOf(url: string, protocol: string): string {
  const { hostname, host } = new URL(url);
  return protocol === 'tcp' || isAddressOfUrl(hostname) ? host : hostname;
}

/** Why an endpoint ended without being closed here. */
export interface EndpointEnd {
  /** The gateway's code, `ERR_NGROK_…`; null when the session was lost. */
  code: string | null;
  message: string;
}

/** Gets what the gateway reports of the requests to an endpoint. */
export interface RequestWatcher {
  /** @param line JSON, a `ReportLine` of agent-protocol */
  onLine(line: string): void;
  /** Nothing more comes, though nobody ended it here. */
  onEnd(): void;
}

export interface ConnectedEndpoint {
  readonly url: string;
  /** Resolves when the endpoint ends without a call of close(); never rejects. */
  readonly ended: Promise<EndpointEnd>;
  /** What the gateway takes for a mistake in its policy, which is valid; omitted: it does not say. */
  readonly policyWarnings?: readonly string[];
  /** Where clients reach it besides, by a name of the gateway's domain; omitted: nowhere, or the gateway does not say. */
  readonly domainUrl?: string;
  /**
   * Unbinds the endpoint at the gateway; once this resolves, the URL no longer answers.
   * If the gateway does not confirm in time, the whole session is replaced by a new one.
   */
  close(): Promise<void>;
  /**
   * Reports requests from now on; omitted when the gateway does not.
   *
   * @returns ends it
   */
  watchRequests?: (watcher: RequestWatcher) => () => void;
}

export const SESSION_STATES = ['connecting', 'online', 'offline', 'stopped'] as const;
export type SessionState = (typeof SESSION_STATES)[number];

export interface SessionStatus {
  /** `connecting` before the first success, `offline` after a loss. */
  state: SessionState;
  since: Date;
  /** Gateway address `host:port`; a name for the embedded one until it has started. */
  gateway: string;
  /** `host:port` of the gateway with a second session; left out: there is none. */
  secondGateway?: string;
  /** Sessions established after the first one. */
  reconnects: number;
  lastError: { code: string | null; message: string } | null;
}

export interface ConnectorEvents {
  online: [];
  offline: [];
  /** The connector connects to upstreams without the agent, and could not connect to one for a client. */
  dialFailed: [];
}

/** A connection to a gateway that reconnects automatically. */
export interface Connector extends EventEmitter<ConnectorEvents> {
  /** Whether there is a session, so that endpoints can be bound. */
  readonly isOnline: boolean;
  readonly status: SessionStatus;
  /**
   * Binds one endpoint on the current session.
   *
   * @throws {ApiError} 503 without a session or when the gateway does not answer in time (then its
   *   cause is a `DeadlineExceeded`), 409 (`ERR_NGROK_334`)
   *   when the endpoint is online elsewhere, 403 when the authtoken's ACL forbids the name, 501 when the gateway
   *   cannot serve the protocol, 502 for its other refusals; code and text are the gateway's own
   */
  open(request: EndpointRequest): Promise<ConnectedEndpoint>;
}
