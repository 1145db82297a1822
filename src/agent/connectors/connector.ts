import type { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import type { TrafficPolicyDocument } from '../../traffic-policy/document.ts';
import type { EndpointOptions } from './endpoint-options.ts';

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
