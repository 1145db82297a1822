import type { EventEmitter } from 'node:events';
import type { TrafficPolicyDocument } from '../../traffic-policy/document.ts';

export const TUNNEL_PROTOCOLS = ['http', 'tcp', 'tls'] as const;
export type TunnelProtocol = (typeof TUNNEL_PROTOCOLS)[number];

/** What the tunnel manager asks of a connection for one tunnel. */
export interface EndpointRequest {
  protocol: TunnelProtocol;
  /** Hostname to bind, for tcp `host:port`; left out, the gateway chooses. */
  domain?: string;
  /** Where the SDK forwards to: `http://…`, `https://…`, `tcp://host:port`, `tls://…` or `unix:/path`. */
  forwardTo: string;
  /** What the gateway shows as the upstream; display only. */
  forwardsTo: string;
  /** In today's shape, already translated from the legacy one. */
  trafficPolicy?: TrafficPolicyDocument;
}

/** Why an endpoint ended that nobody here closed. */
export interface EndpointEnd {
  /** The gateway's code, `ERR_NGROK_…`; null when the session was lost. */
  code: string | null;
  message: string;
}

/** A public URL that is bound now. */
export interface Endpoint {
  readonly url: string;
  /** Settles when the endpoint is gone although nobody called close(); never rejects. */
  readonly ended: Promise<EndpointEnd>;
  /**
   * Unbinds the endpoint at the gateway; once it resolves, the URL no longer answers.
   * When the gateway does not confirm in time, the whole session is replaced by a new one.
   */
  close(): Promise<void>;
}

export const SESSION_STATES = ['connecting', 'online', 'offline', 'stopped'] as const;
export type SessionState = (typeof SESSION_STATES)[number];

/** What is known of the session; the truth that the API reports. */
export interface SessionStatus {
  /** `connecting` before the first success, `offline` after a loss. */
  state: SessionState;
  since: Date;
  /** Gateway address `host:port`; what the embedded one is called until it has started. */
  gateway: string;
  /** Sessions established after the first one. */
  reconnects: number;
  lastError: { code: string | null; message: string } | null;
}

/** What the tunnel manager needs of a connection to a gateway. */
export interface Connector extends EventEmitter<{ online: []; offline: [] }> {
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
