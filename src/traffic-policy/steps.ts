import type { CelInput } from '@bufbuild/cel';
import type { PolicyScope } from './scope/policy-scope.ts';

export type EndpointProtocol = 'http' | 'https' | 'tcp' | 'tls';

/** The client's TLS connection, as far as the handshake has come. */
export interface PolicyTls {
  /** As the ClientHello has it; null when it names no server. */
  readonly sni: string | null;
  /** `1.2` or `1.3`; null before the handshake, and when the edge does not terminate it. */
  readonly version: string | null;
  readonly cipherSuite: string | null;
  readonly alpn: string | null;
  readonly ja4: string | null;
  /** DER; null when the client showed none. */
  readonly clientCertificate: Uint8Array | null;
  /** PEM of the authorities that the handshake verified the client's certificate against; left out: it did not. */
  readonly verifiedBy?: readonly string[];
  /** DER; null before the handshake. */
  readonly serverCertificate: Uint8Array | null;
}

/** The public client's connection, as policies see it. */
export interface PolicyConnection {
  readonly clientIp: string;
  readonly clientPort: number;
  readonly serverIp: string;
  readonly serverPort: number;
  /** Milliseconds since 1970. */
  readonly startedAt: number;
  readonly tls: PolicyTls | null;
  bytesIn(): number;
  bytesOut(): number;
  /** What the actions of on_tcp_connect found out, for later phases. The engine's own; the edge leaves it alone. */
  results?: Map<string, CelInput>;
}

/** The endpoint that the client's traffic goes to. */
export interface PolicyEndpoint {
  readonly id: string;
  readonly url: string;
  readonly protocol: EndpointProtocol;
  readonly host: string;
  readonly port: number;
}

/** What the phase on_tcp_connect sees, and what it leaves behind. */
export interface PolicyConnect {
  readonly connection: PolicyConnection;
  readonly endpoint: PolicyEndpoint;
  /** Set by the action terminate-tls: how the edge is to do the handshake that comes next. */
  termination?: TlsTermination;
  /** The engine's own; the edge leaves it alone. */
  scope?: PolicyScope;
}

/** How the edge is to terminate TLS; null leaves a choice to the edge. */
export interface TlsTermination {
  readonly minVersion: '1.2' | '1.3';
  readonly maxVersion: '1.2' | '1.3';
  /** PEM, both or neither. */
  readonly certificate: string | null;
  readonly privateKey: string | null;
  /** PEM certificates or identifiers of certificate authorities; empty: clients need no certificate. */
  readonly clientAuthorities: readonly string[];
  readonly clientVerification: 'require-and-verify' | 'require-any' | 'request';
}

/**
 * What a policy sees of a request and may change. Headers are flat name, value lists as they are on
 * the wire, changed in place.
 */
export interface PolicyRequest {
  readonly method: string;
  /** Path and query, as sent to the upstream; a policy may rewrite it. */
  target: string;
  /** As in `HTTP/1.1`. */
  readonly version: string;
  readonly headers: string[];
  readonly connection: PolicyConnection;
  readonly endpoint: PolicyEndpoint;
  /**
   * Reads the body so that it can still be sent on.
   *
   * @returns empty when there is none; null when it is longer than `limit` bytes, or breaks off
   */
  readBody(limit: number): Promise<Buffer | null>;
  /** The engine's own, like scope: who wants to know how the upstream answers. */
  watchers?: ((status: number | null) => void)[];
  /** The engine's own; the edge leaves it alone. */
  scope?: PolicyScope;
}

/** What a policy sees of a response and may change. */
export interface PolicyResponse {
  status: number;
  readonly headers: string[];
  /** Set by the action compress-response: the edge pipes the body through this encoding. */
  encoding?: ContentEncoding;
}

export type ContentEncoding = 'gzip' | 'deflate' | 'br';

/** An answer that the edge gives itself. */
export interface PolicyAnswer {
  readonly kind: 'answer';
  readonly status: number;
  /** Flat name, value list; may be shared by all requests, so never to be changed. */
  readonly headers: readonly string[];
  readonly body: Buffer;
  /** A refusal: the phase on_http_response does not run for it. */
  readonly refused: boolean;
}

/** A refusal that the edge answers with its error page. The phase on_http_response does not run for it. */
export interface PolicyError {
  readonly kind: 'error';
  readonly status: number;
  /** For the header `ngrok-error-code`. */
  readonly code: string;
  /** One sentence for the public; names nothing of the policy. */
  readonly message: string;
  /** Flat name, value list to be added to the page's own headers. */
  readonly headers: readonly string[];
}

/** The connection is to be cut without an answer. */
export interface PolicyClose {
  readonly kind: 'close';
}

/** The traffic goes to an internal endpoint instead of the upstream; that endpoint's own policy runs, too. */
export interface PolicyForward<Result> {
  readonly kind: 'forward';
  /** `scheme://name.internal[:port]`. */
  readonly url: string;
  /**
   * What comes when it cannot be forwarded: the rest of the phase, whose outcome is to be carried out
   * like any other. Null when the client is to be told of the failure.
   */
  readonly resume: ((failure: ForwardFailure) => Result) | null;
}

/** Why a request could not be forwarded. */
export interface ForwardFailure {
  /** `ERR_NGROK_3200` for a target that is offline, `ERR_NGROK_3210` for one that failed. */
  readonly code: string;
  readonly message: string;
}

export type ConnectOutcome = PolicyClose | PolicyForward<ConnectOutcome | undefined>;
export type RequestOutcome =
  | PolicyAnswer
  | PolicyError
  | PolicyClose
  | PolicyForward<MaybePromise<RequestOutcome | undefined>>;
export type ResponseOutcome = PolicyAnswer | PolicyError;

export type MaybePromise<T> = T | Promise<T>;

/**
 * One action, ready to run. An outcome ends the phase; undefined goes on with the next step. Only
 * steps of requests may have to wait for something.
 */
export type ConnectStep = (connect: PolicyConnect) => ConnectOutcome | undefined;
export type RequestStep = (request: PolicyRequest) => MaybePromise<RequestOutcome | undefined>;
export type ResponseStep = (request: PolicyRequest, response: PolicyResponse) => ResponseOutcome | undefined;

/**
 * An action with its configuration. It has a member for each phase that it may stand in, which makes
 * its step; they throw PolicyRefused when the configuration cannot be run there.
 */
export interface PreparedAction {
  /** Whether no later action of the phase is ever reached. */
  readonly ends: boolean;
  readonly on_tcp_connect?: () => ConnectStep;
  readonly on_http_request?: () => RequestStep;
  readonly on_http_response?: () => ResponseStep;
}
