import type { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { z } from 'zod';
import type { TrafficPolicyDocument } from '../../traffic-policy/document.ts';

/** ngrok's limit, in bytes of UTF-8. */
const MAX_METADATA = 4096;

const PROXY_VERSIONS = { '1': '1', '2': '2' } as const;

/** What an endpoint can ask for beside its address and its policy; members of `POST /tunnels`, where null counts as not sent. */
export const EndpointOptions = z.object({
  binding: z
    .enum(['public', 'internal'], { error: 'must be public or internal' })
    .nullish()
    .meta({
      description: 'internal: reached only by policies of other tunnels; needs a domain below .internal.',
    })
    .transform(set)
    .optional(),
  app_protocol: z
    .enum(['http1', 'http2'], { error: 'must be http1 or http2' })
    .nullish()
    .meta({ description: 'What the upstream of an http tunnel speaks; http2 from the first byte, as for gRPC.' })
    .transform(set)
    .optional(),
  pooling: z
    .boolean({ error: 'must be true or false' })
    .nullish()
    .meta({ description: 'Shares the URL in turns with tunnels of other agents that also ask for it.' })
    .transform((pooling) => set(pooling || null))
    .optional(),
  metadata: z
    .string({ error: 'must be text' })
    .refine((text) => Buffer.byteLength(text) <= MAX_METADATA, `is longer than ${MAX_METADATA} bytes`)
    .nullish()
    .meta({ description: `Text for programs, which the gateway lists; at most ${MAX_METADATA} bytes of UTF-8.` })
    .transform(set)
    .optional(),
  proxy_proto: z
    .union([z.enum(['1', '2']), z.literal([1, 2])], { error: 'must be 1 or 2' })
    .nullish()
    .meta({ description: 'Version of the PROXY header that starts each connection to the upstream.' })
    .transform((version) => set(version && PROXY_VERSIONS[version]))
    .optional(),
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

/** Where an endpoint's connections go. */
export interface EndpointUpstream {
  /**
   * Makes one connection, which is checked; TLS is established where the upstream requires it.
   *
   * @throws {Error} with the reason when the upstream is unreachable or not allowed
   */
  connect(): Promise<Socket>;
  /** Call this for each connection, with what it carries; omitted when nobody looks. */
  observeConnection?(): ConnectionTraffic;
  /**
   * The address for a connector whose SDK connects on its own: `http://…`, `https://…`, `tcp://host:port`, `tls://…` or
   * `unix:/path`.
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
  /** In today's shape, already translated from the legacy one. */
  trafficPolicy?: TrafficPolicyDocument;
  options?: EndpointOptions;
}

/** The domain that keeps an endpoint at its URL: the URL's host, for tcp with its port. */
export function domainOf(url: string, protocol: string): string {
  const { hostname, host } = new URL(url);
  return protocol === 'tcp' ? host : hostname;
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

export interface Endpoint {
  readonly url: string;
  /** Resolves when the endpoint ends without a call of close(); never rejects. */
  readonly ended: Promise<EndpointEnd>;
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

/** A connection to a gateway that reconnects automatically. */
export interface Connector extends EventEmitter<{ online: []; offline: [] }> {
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
  open(request: EndpointRequest): Promise<Endpoint>;
}
