import type { CelInput, CelMap } from '@bufbuild/cel';
import type { SharedRate } from '../lib/bandwidth.ts';
import type { NoticeLink } from '../lib/http/notice-page.ts';
import type { MemoryBudget, Reservation } from '../lib/memory-budget.ts';
import type { UpstreamConfig } from './action-config.ts';
import type { EvaluationContext } from './cel/evaluation.ts';
import type { OutboundRequest, OutboundResponse } from './public-request.ts';
import type { RuleRecord } from './rule-record.ts';
import type { UserAgent } from './scope/user-agent.ts';
import type { ProcessorTime } from './state/processor-time.ts';

export type EndpointProtocol = 'http' | 'https' | 'tcp' | 'tls';

export interface PolicyTls {
  readonly sni: string | null;
  /** `1.2` or `1.3`; null before the handshake, and when the edge does not terminate it. */
  readonly version: string | null;
  readonly cipherSuite: string | null;
  readonly alpn: string | null;
  readonly ja4: string | null;
  /** DER; null when the client presented none. */
  readonly clientCertificate: Uint8Array | null;
  /** PEM of the CAs that the handshake verified the client's certificate with; undefined when it did not verify. */
  readonly verifiedBy?: readonly string[];
  /** DER; null before the handshake. */
  readonly serverCertificate: Uint8Array | null;
}

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
  /** Set by gateway-limit-bandwidth before any HTTP: for all that follows, also at endpoints to which policies forward. */
  bandwidth?: ClientBandwidth;
  /** The network of the client, once it was asked for. Only the engine uses it. */
  network?: string;
  /** Results of the actions of on_tcp_connect, for later phases. Only the engine uses it. */
  results?: Map<string, CelInput>;
}

export interface PolicyEndpoint {
  readonly id: string;
  readonly url: string;
  readonly protocol: EndpointProtocol;
  readonly host: string;
  readonly port: number;
}

export interface PolicyConnect {
  readonly connection: PolicyConnection;
  readonly endpoint: PolicyEndpoint;
  /** Set by the action terminate-tls: how the edge does the handshake that follows. */
  termination?: TlsTermination;
  /** The type of the action whose outcome came last. */
  endedBy?: string;
  readonly record?: RuleRecord | undefined;
  /** Only the engine uses it. */
  scope?: PolicyScope;
}

/** How the edge terminates TLS; null leaves the choice to the edge. */
export interface TlsTermination {
  readonly minVersion: '1.2' | '1.3';
  readonly maxVersion: '1.2' | '1.3';
  /** PEM; null together with `privateKey`. */
  readonly certificate: string | null;
  readonly privateKey: string | null;
  /** PEM certificates or IDs of CAs; empty when clients need no certificate. */
  readonly clientAuthorities: readonly string[];
  readonly clientVerification: 'require-and-verify' | 'require-any' | 'request';
}

/** What a policy sees of a request and may change. Headers alternate names and values, as on the wire; they change in place. */
export interface PolicyRequest {
  /** The gateway asks for itself, and counts in no limit; left out: a client asks. */
  readonly isProbe?: true;
  readonly method: string;
  /** Path and query, as sent to the upstream; a policy may rewrite it. */
  target: string;
  /** The host, perhaps with a port, that the client has asked for; policies cannot change it, unlike the header. */
  readonly clientHost: string;
  /** Path and query that the client has asked for. */
  readonly clientTarget: string;
  /** Cookies of sign-ins and share links by name. They are not in the headers: neither upstreams nor policies see them. */
  readonly ownCookies: ReadonlyMap<string, string>;
  readonly version: string;
  readonly headers: string[];
  readonly connection: PolicyConnection;
  readonly endpoint: PolicyEndpoint;
  /** Reads the body; the edge can still send it to the upstream. Empty without one; null when it is longer or incomplete. */
  readBody(limit: number): Promise<Buffer | null>;
  /** Sends another body to the upstream than the one that was read. @returns false when there is no room for it */
  replaceBody(body: Buffer): boolean;
  /** Where actions reserve what they make of bodies; omitted: it is not counted. */
  readonly bodyMemory?: MemoryBudget;
  /** Calls back once the response has ended, or at once when it has; omitted: nobody knows. */
  onEnd?(callback: () => void): void;
  /** Aborts with {@link ClientLeft} when the client leaves, or has its response; omitted: nobody can tell. */
  readonly clientLeft?: AbortSignal;
  /** The requests that policies make for this one; omitted: they are not counted, and reach no internal endpoints. */
  readonly calls?: PolicyCalls;
  readonly record?: RuleRecord | undefined;
  /** Set by gateway-upstream: how the edge treats the upstream. */
  upstream?: UpstreamConfig;
  /** Set by gateway-limit-bandwidth: what the clients of this one's address share. */
  bandwidth?: ClientBandwidth;
  /** The type of the action whose outcome came last. */
  endedBy?: string;
  /** Set by actions: cookies of sign-ins and share links that the response sets, flat name, value list. No policy sees them. */
  responseCookies?: readonly string[];
  /** Set by sign-ins: the page for the person who has signed in, in a browser, and whom the policy then rejects. */
  notAdmitted?: () => NotAdmitted;
  /** Called with the upstream's status, or null without a response. Only the engine uses it. */
  watchers?: ((status: number | null) => void)[];
  /** Only the engine uses it. */
  scope?: PolicyScope;
}

/** Rates that requests share; null: any number of bytes. */
export interface ClientBandwidth {
  /** To clients. */
  readonly up: SharedRate | null;
  /** From clients. */
  readonly down: SharedRate | null;
}

/** What somebody reads who may not come in, and where they can sign in as somebody else. */
export interface NotAdmitted {
  readonly message: string;
  readonly link: NoticeLink;
}

export interface PolicyCalls {
  /** How many more there may be, for the client's request and those that internal endpoints make for it. */
  left: number;
  /**
   * Sends one to an internal endpoint.
   *
   * @throws Error when it is offline, its response is too long, or the signal aborts
   */
  ask(outbound: OutboundRequest, signal: AbortSignal): Promise<OutboundResponse>;
}

export type Subject = PolicyRequest | PolicyConnect;

export interface PolicyResponse {
  readonly status: number;
  readonly headers: string[];
  /** Set by the action compress-response: the edge compresses the body. */
  compression?: Compression;
  /** Reads the body; the edge can still send it to the client. Null when it is longer or incomplete. Omitted without one. */
  readonly readBody?: (limit: number) => Promise<Buffer | null>;
  /** Set by a policy with rules for messages: the body is an event stream, whose messages pass through them. */
  hasMessages?: true;
  /** Set by an action that has read the body: what the client gets instead, before it is compressed. */
  body?: Buffer;
  /** What that reserves until the response has ended. */
  bodyHeld?: Reservation;
}

/** A message of an event stream, as a policy may change it. */
export interface EventStreamMessage {
  readonly response: PolicyResponse;
  /** The values of its fields `data` joined by line breaks, and of its field `retry`; null without such a field. */
  data: string | null;
  retry: string | null;
}

export type ContentEncoding = 'gzip' | 'deflate' | 'br';

export interface Compression {
  readonly encoding: ContentEncoding;
  readonly time: ProcessorTime;
  /** Where the encoder is counted, with so many bytes. */
  readonly memory: MemoryBudget;
  readonly bytes: number;
}

/** How long something is held for a request. */
export type Until = 'phase' | 'response';

/**
 * Everything that the expressions of a policy can read of one request, or of one connection in its own phase. The engine
 * makes it when an action or expression first needs it.
 */
export interface PolicyScope extends EvaluationContext {
  readonly connection: PolicyConnection;
  readonly endpoint: PolicyEndpoint;
  readonly request: PolicyRequest | null;
  readonly response: PolicyResponse | null;
  /** Milliseconds since 1970. */
  readonly createdAt: number;
  readonly vars: CelMap;
  readonly actions: CelMap;
  readonly requestHeaders: CelMap;
  readonly responseHeaders: CelMap;
  readonly requestCookies: CelMap;
  readonly responseCookies: CelMap;
  readonly path: string;
  readonly queryParameters: CelMap;
  readonly userAgent: UserAgent;
  certificate(side: 'client' | 'server'): Record<string, CelInput> | undefined;
  /** What is known of an address, by the rest of the variables' names. */
  address(side: 'client' | 'server'): Readonly<Record<string, CelInput>>;
  /** Milliseconds since 1970. */
  now(): number;
  /** Call it when a phase begins: variables last for one phase. */
  begin(response: PolicyResponse | null): void;
  /** Call it when a phase has ended. @param isOver whether it cannot go on, as it does after a failed forward */
  end(isOver: boolean): void;
  /** Call it after changing the request or the response, and before waiting: forgets what was parsed. */
  changed(): void;
  /**
   * Counts bytes that actions hold for the request.
   *
   * @throws {PolicyFailure} when it is too much
   */
  hold(bytes: number, until: Until): void;
  /** @throws {PolicyFailure} when the variables are too large */
  setVariable(name: string, value: CelInput): void;
  /** Records the result of an action, as `actions.ngrok.<action>`. */
  setResult(action: string, result: object): void;
  result(action: string): CelInput | undefined;
}
