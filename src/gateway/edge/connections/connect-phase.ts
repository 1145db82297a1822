import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { hostPort, withoutMapping } from '../../../lib/network/ip-address.ts';
import type { CompiledPolicy } from '../../../traffic-policy/engine.ts';
import type {
  PolicyConnect,
  PolicyConnection,
  PolicyTls,
  TlsTermination,
} from '../../../traffic-policy/policy-subjects.ts';
import { RuleRecord } from '../../../traffic-policy/rule-record.ts';
import type { ForwardFailure, PolicyError } from '../../../traffic-policy/steps.ts';
import type {
  EndpointDirectory,
  EndpointProtocol,
  GatewayEndpoint,
  InternalAddress,
  InternalLookup,
  InternalLookupFor,
} from '../../endpoints/online-endpoint.ts';
import { AGENT_AWAY, AWAY_RETRY_S } from '../http/edge-errors.ts';
import { type HelloClient, meetsClientDemands, mergeDemands } from '../tls/handshakes.ts';

const UNKNOWN = '0.0.0.0';

/** A client's connection as the policy of one endpoint sees it. */
export class ClientConnection implements PolicyConnection {
  readonly clientIp: string;
  readonly clientPort: number;
  readonly serverIp: string;
  readonly serverPort: number;
  network?: string;
  results?: NonNullable<PolicyConnection['results']>;
  bandwidth?: NonNullable<PolicyConnection['bandwidth']>;
  /** The rules of on_tcp_connect that acted; undefined when nobody watched. */
  record: RuleRecord | undefined;
  /** `ip:port` */
  readonly client: string;

  constructor(
    private readonly socket: Socket,
    readonly startedAt: number,
    readonly tls: PolicyTls | null,
  ) {
    this.clientIp = withoutMapping(socket.remoteAddress ?? UNKNOWN);
    this.clientPort = socket.remotePort ?? 0;
    this.client = hostPort(this.clientIp, this.clientPort);
    this.serverIp = withoutMapping(socket.localAddress ?? UNKNOWN);
    this.serverPort = socket.localPort ?? 0;
  }

  /** The same connection for another endpoint's policy, without the results of this one. */
  forNextPolicy(): ClientConnection {
    const next = new ClientConnection(this.socket, this.startedAt, this.tls);
    if (this.bandwidth !== undefined) next.bandwidth = this.bandwidth;
    return next;
  }

  bytesIn(): number {
    return this.socket.bytesRead;
  }

  bytesOut(): number {
    return this.socket.bytesWritten;
  }
}

/** @param verifiedBy PEM of the authorities that the client's certificate was verified against */
export function clientTls(socket: Socket, verifiedBy?: readonly string[]): PolicyTls | null {
  return socket instanceof TLSSocket ? new ClientTls(socket, verifiedBy) : null;
}

/** What a ClientHello reveals: all that is known before the handshake, or when the edge does not terminate TLS. */
export class HelloTls implements PolicyTls {
  readonly version = null;
  readonly cipherSuite = null;
  readonly alpn = null;
  readonly ja4 = null;
  readonly clientCertificate = null;
  readonly serverCertificate = null;

  constructor(readonly sni: string | null) {}
}

/** The result of a handshake; looked up only when a policy asks. */
class ClientTls implements PolicyTls {
  readonly ja4 = null;

  constructor(
    private readonly socket: TLSSocket,
    readonly verifiedBy: readonly string[] = [],
  ) {}

  get sni(): string | null {
    // Node's types declare it for clients only. Handshakes sets it to the name that the connection was routed by.
    const { servername } = this.socket as TLSSocket & { servername?: string };
    return servername || null;
  }

  get version(): string | null {
    return this.socket.getProtocol()?.replace('TLSv', '') ?? null;
  }

  get cipherSuite(): string | null {
    return this.socket.getCipher()?.standardName ?? null;
  }

  get alpn(): string | null {
    return this.socket.alpnProtocol || null;
  }

  get clientCertificate(): Uint8Array | null {
    return this.socket.getPeerX509Certificate()?.raw ?? null;
  }

  get serverCertificate(): Uint8Array | null {
    return this.socket.getX509Certificate()?.raw ?? null;
  }
}

/** How often a request or connection may be forwarded: endpoints that forward to each other would loop forever. */
export const MAX_FORWARDS = 3;

export const TARGET_OFFLINE: ForwardFailure = {
  code: 'ERR_NGROK_3200',
  message: 'The internal endpoint is offline.',
};

export const TARGET_AWAY: ForwardFailure = {
  code: AGENT_AWAY,
  message: 'The agent of the internal endpoint has lost its connection a moment ago and is not back yet.',
};

export const TARGET_FAILED: ForwardFailure = {
  code: 'ERR_NGROK_3210',
  message: 'The internal endpoint could not be reached.',
};

export const TOO_MANY_FORWARDS: ForwardFailure = {
  code: 'ERR_NGROK_3210',
  message: `The request was forwarded more than ${MAX_FORWARDS} times.`,
};

export function forwardError(failure: ForwardFailure): PolicyError {
  if (failure === TARGET_AWAY)
    return { kind: 'error', status: 503, ...failure, headers: ['retry-after', String(AWAY_RETRY_S)] };
  return { kind: 'error', status: failure === TARGET_OFFLINE ? 404 : 502, ...failure, headers: [] };
}

const PORTS: Readonly<Record<string, number>> = { http: 80, https: 443, tls: 443 };

/** @param url validated by the action forward-internal: `scheme://name.internal`, perhaps with a port */
export function internalTarget(url: string, lookup: InternalLookup): GatewayEndpoint | undefined {
  const { protocol, host, port } = internalAddress(url);
  return lookup(protocol, host, port);
}

/** @param url as in {@link internalTarget} */
export function internalAddress(url: string): InternalAddress {
  const { protocol, hostname, port } = new URL(url.toLowerCase());
  const scheme = protocol.slice(0, -1) as EndpointProtocol;
  return { protocol: scheme, host: hostname, port: Number(port) || (PORTS[scheme] ?? 0) };
}

/** Finds internal endpoints here, and else at other gateways. */
export function internalLookup({
  endpoints,
  relays,
}: {
  endpoints: Pick<EndpointDirectory, 'internal'>;
  relays: { internalFor(client: Socket, address: InternalAddress): GatewayEndpoint | undefined } | null;
}): InternalLookupFor {
  return (client) => (protocol, host, port) =>
    endpoints.internal(protocol, host, port) ?? relays?.internalFor(client, { protocol, host, port });
}

type ConnectResult =
  | { readonly kind: 'upstream' }
  | { readonly kind: 'rejected' }
  | { readonly kind: 'internal'; readonly url: string; readonly target: GatewayEndpoint };

const UPSTREAM: ConnectResult = { kind: 'upstream' };
const REJECTED: ConnectResult = { kind: 'rejected' };

export function runConnectPhase(
  { onTcpConnect }: CompiledPolicy,
  connect: PolicyConnect,
  internal: InternalLookup,
): ConnectResult {
  let outcome = onTcpConnect?.(connect);
  while (outcome?.kind === 'forward') {
    const target = internalTarget(outcome.url, internal);
    if (target) return { kind: 'internal', url: outcome.url, target };
    if (outcome.resume === null) return REJECTED;
    outcome = outcome.resume(TARGET_OFFLINE);
  }
  return outcome === undefined ? UPSTREAM : REJECTED;
}

/** A record of the rules that act on a connection, for those who watch the endpoint; undefined when nobody does. */
function recordFor(connection: ClientConnection, { feed }: GatewayEndpoint): RuleRecord | undefined {
  if (feed !== null) connection.record = new RuleRecord();
  return connection.record;
}

export function isAllowed(policy: CompiledPolicy, connect: PolicyConnect): boolean {
  return runConnectPhase(policy, connect, () => undefined).kind === 'upstream';
}

interface Destination {
  readonly endpoint: GatewayEndpoint;
  readonly through: readonly GatewayEndpoint[];
  readonly connection: ClientConnection;
  /** How the policies terminate TLS; null when none of them does. */
  readonly termination: TlsTermination | null;
}

/** Follows a connection through all policies; null when one rejects it, or it is forwarded too often. */
export function findDestination(
  endpoint: GatewayEndpoint,
  connection: ClientConnection,
  internal: InternalLookup,
): Destination | null {
  let at: Destination = { endpoint, through: [], connection, termination: null };
  for (let forwards = 0; forwards <= MAX_FORWARDS; forwards++) {
    const connect: PolicyConnect = { connection: at.connection, endpoint: at.endpoint };
    const result = runConnectPhase(at.endpoint.policy, connect, internal);
    if (result.kind === 'rejected') return null;
    const termination = mergeDemands(at.termination, connect.termination ?? null);
    if (result.kind === 'upstream') return { ...at, termination };
    const through = [...at.through, at.endpoint];
    at = { endpoint: result.target, through, connection: at.connection.forNextPolicy(), termination };
  }
  return null;
}

export interface HandshakePlan {
  /** What the handshake demands of the client; null for the defaults. */
  readonly demands: TlsTermination | null;
  readonly connectPhase: {
    readonly endpoint: GatewayEndpoint;
    readonly connection: ClientConnection;
    readonly result: ConnectResult;
  } | null;
}

const DEFAULT_PLAN: HandshakePlan = { demands: null, connectPhase: null };

/** A policy that terminates TLS runs its phase on_tcp_connect now: it decides how. Null when it rejects the connection. */
export function planHandshake(
  { socket, hostName }: HelloClient,
  endpoint: GatewayEndpoint | undefined,
  internal: InternalLookupFor,
): HandshakePlan | null {
  if (!endpoint) return DEFAULT_PLAN;
  const { policy, tls } = endpoint;
  if (!policy.terminatesTls) return { demands: tls, connectPhase: null };
  const connection = new ClientConnection(socket, Date.now(), new HelloTls(hostName));
  const connect: PolicyConnect = { connection, endpoint, record: recordFor(connection, endpoint) };
  const result = runConnectPhase(policy, connect, internal(socket));
  if (result.kind === 'rejected') return null;
  return { demands: mergeDemands(tls, connect.termination ?? null), connectPhase: { endpoint, connection, result } };
}

/** The endpoint that serves a request, and the request's connection as that endpoint's policy sees it. */
export interface Admission {
  readonly endpoint: GatewayEndpoint;
  readonly connection: ClientConnection;
  /** Whether another gateway has forwarded the request, and said in its headers who the client is; left out: no. */
  readonly isForwarded?: boolean;
  /** The gateway asks for itself: nobody counts or watches it. Left out: it does not. */
  readonly isProbe?: true;
}

interface AdmittedEndpoint extends Admission {
  /** Result of the phase on_tcp_connect; null until it has run. */
  result: ConnectResult | null;
  /** The connection as the internal endpoint's policy sees it, once the phase has forwarded it to one. */
  inside: ClientConnection | null;
}

/** Takes HTTP connections through on_tcp_connect with the first request for each endpoint: before, it is not known. */
export class ClientConnections {
  readonly #opened = new WeakMap<Socket, { at: number; plan: HandshakePlan }>();
  readonly #admitted = new WeakMap<Socket, AdmittedEndpoint>();

  constructor(private readonly internal: InternalLookupFor) {}

  opened(socket: Socket, plan: HandshakePlan = DEFAULT_PLAN): void {
    this.#opened.set(socket, { at: Date.now(), plan });
  }

  /** The endpoint that the request named, or an internal one; null when the policy rejects the connection. */
  admit(socket: Socket, endpoint: GatewayEndpoint): Admission | null {
    const admitted = this.#admittedTo(socket, endpoint);
    if (endpoint.policy.onTcpConnect === null) return admitted;
    if (admitted.result === null) {
      const result = this.#runConnectPhase(socket, admitted);
      if (result.kind === 'rejected') return null;
      admitted.result = result;
      admitted.inside = result.kind === 'internal' ? admitted.connection.forNextPolicy() : null;
    }
    if (admitted.result.kind !== 'internal' || admitted.inside === null) return admitted;
    // The endpoint that was online for an earlier request may be offline now.
    const target = internalTarget(admitted.result.url, this.internal(socket));
    return target ? { endpoint: target, connection: admitted.inside } : null;
  }

  connectionTo(endpoint: GatewayEndpoint, socket: Socket): ClientConnection {
    return this.#admittedTo(socket, endpoint).connection;
  }

  #runConnectPhase(socket: Socket, { connection, endpoint }: AdmittedEndpoint): ConnectResult {
    const { demands, connectPhase } = this.#opened.get(socket)?.plan ?? DEFAULT_PLAN;
    if (connectPhase?.endpoint === endpoint) return connectPhase.result;
    const connect: PolicyConnect = { connection, endpoint, record: recordFor(connection, endpoint) };
    const result = runConnectPhase(endpoint.policy, connect, this.internal(socket));
    // The handshake was performed for another endpoint and cannot be repeated.
    const isMet = !connect.termination || meetsClientDemands(connect.termination, demands);
    return isMet ? result : { kind: 'rejected' };
  }

  /** The same object for consecutive requests to one endpoint; each endpoint's policy has results of its own. */
  #admittedTo(socket: Socket, endpoint: GatewayEndpoint): AdmittedEndpoint {
    const last = this.#admitted.get(socket);
    if (last?.endpoint === endpoint) return last;
    const { at = Date.now(), plan = DEFAULT_PLAN } = this.#opened.get(socket) ?? {};
    const connection = new ClientConnection(socket, at, clientTls(socket, verifiedAgainst(plan)));
    const before = plan.connectPhase?.endpoint === endpoint ? plan.connectPhase.connection : undefined;
    if (before?.results) connection.results = before.results;
    connection.record = before?.record;
    const admitted = { endpoint, connection, result: null, inside: null };
    this.#admitted.set(socket, admitted);
    return admitted;
  }
}

function verifiedAgainst({ demands }: HandshakePlan): readonly string[] {
  return demands?.clientVerification === 'require-and-verify' ? demands.clientAuthorities : [];
}
