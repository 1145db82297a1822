import { EventEmitter, once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type RequestListener, type Server } from 'node:http';
import { type AddressInfo, connect, type Server as NetServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import type { ByteChannel } from '../../src/agent-protocol/byte-channel.ts';
import { HttpChallenges, TlsAlpnChallenges } from '../../src/gateway/certificates/challenges/challenges.ts';
import { type LocalCa, openLocalCa } from '../../src/gateway/certificates/local-ca/local-ca.ts';
import type { EdgeContext } from '../../src/gateway/context/gateway-context.ts';
import { EdgeServer, type EdgeServerOptions } from '../../src/gateway/edge/edge-server.ts';
import type { NodePlace, OtherNodes } from '../../src/gateway/edge/relays/other-nodes.ts';
import { RelayTickets } from '../../src/gateway/edge/relays/relay-tickets.ts';
import { Relays } from '../../src/gateway/edge/relays/relays.ts';
import { AgentConnections } from '../../src/gateway/edge/tls/agent-connections.ts';
import { LostAddresses } from '../../src/gateway/endpoints/endpoint-registry.ts';
import {
  type ClientInfo,
  EDGE_TERMINATION,
  type EndpointProtocol,
  type GatewayEndpoint,
} from '../../src/gateway/endpoints/online-endpoint.ts';
import { EndpointTraffic } from '../../src/gateway/endpoints/traffic-counts.ts';
import { EdgeCounters } from '../../src/gateway/metrics/edge-counters.ts';
import type { PolicyFrame } from '../../src/traffic-policy/compile-rules.ts';
import { compilePolicy } from '../../src/traffic-policy/engine.ts';
import { edgeContext } from './edge-context.ts';
import type { Missing } from './requirements.ts';
import { silentLog } from './silent-log.ts';
import { StreamChannel } from './stream-channel.ts';

/** An endpoint that connects to its upstream directly, without an agent. */
export class DirectEndpoint implements GatewayEndpoint {
  readonly id = 'ep_test';
  readonly port = 9999;
  readonly url: string;
  readonly policy: GatewayEndpoint['policy'];
  readonly tls: GatewayEndpoint['tls'];
  proxyProtocol: GatewayEndpoint['proxyProtocol'] = 0;
  http2Upstream = false;
  readonly forwardsTo = '';
  readonly traffic = new EndpointTraffic();
  websocketTcp = false;
  feed: GatewayEndpoint['feed'] = null;
  /** Streams opened so far. */
  readonly streams: Duplex[] = [];
  /** The clients of the opened streams. */
  readonly clients: ClientInfo[] = [];
  /** Opens a stream; tests may replace it. */
  open: () => Duplex;

  constructor(
    readonly host: string,
    readonly protocol: EndpointProtocol,
    upstreamPort: number,
    policy: object | null,
    frame?: PolicyFrame,
  ) {
    this.url = `${protocol}://${host}:9999`;
    this.policy = compilePolicy(policy && JSON.stringify(policy), protocol, { ...(frame && { frame }) });
    this.tls = protocol === 'https' ? EDGE_TERMINATION : null;
    const target = { port: upstreamPort, host: '127.0.0.1', allowHalfOpen: true };
    this.open = () => connect(target).on('error', () => {});
  }

  openChannel(client: ClientInfo): ByteChannel {
    return new StreamChannel(this.openStream(client));
  }

  openStream(client: ClientInfo): Duplex {
    const stream = this.open();
    if (client.proxyHeader) stream.write(client.proxyHeader);
    this.streams.push(stream);
    this.clients.push(client);
    return stream;
  }
}

/** Endpoints that tests put online. */
export class Directory extends EventEmitter {
  readonly lost = new LostAddresses();

  readonly byHost = new Map<string, GatewayEndpoint>();
  lookup(scheme: EndpointProtocol, host: string): GatewayEndpoint | undefined {
    const endpoint = this.byHost.get(host);
    return endpoint?.protocol === scheme ? endpoint : undefined;
  }
  peek(scheme: EndpointProtocol, host: string): GatewayEndpoint | undefined {
    return this.lookup(scheme, host);
  }
  internal(): undefined {
    return undefined;
  }
  another(): undefined {
    return undefined;
  }
}

/** Whether clients reach the edges of all tests through another node of a cluster, which passes their connections on. */
export const THROUGH_WRONG_NODE = process.env.TEST_EDGE === 'relayed';
/** Of tests about what the edge does before it knows the host: that happens at the other node. */
export const NO_DIRECT_CLIENTS: Missing = THROUGH_WRONG_NODE ? 'clients reach the edge through another gateway' : null;
const OWNER = 'owner';

/** Other nodes of which one, if any, serves every name. */
export function othersWith(owner: () => NodePlace | undefined): OtherNodes {
  return {
    ...{ withName: owner, withHttpName: owner, withTcpPort: owner, withShared: owner, withInternal: owner },
    ...{ knows: () => true, catchUp: async () => {}, failed: () => {}, answered: () => {}, serves: () => true },
    expectAt: () => undefined,
    expectedHere: () => '',
    primary: undefined,
    forAgents: undefined,
  };
}

/** There is no shared database. */
export const NO_DATABASE = async () => Promise.reject(new Error('no shared database'));

/** The parts of a gateway that an edge on its own lacks. */
export const withoutParts = () => ({
  domainCertificates: { pairFor: () => null },
  domainOf: () => null,
  challenges: { http: new HttpChallenges(), tlsAlpn: new TlsAlpnChallenges() },
  isRefused: () => false,
  services: new Map(),
  serviceMessages: {},
  agents: new AgentConnections('connect.localhost'),
  authorityPem: () => null,
  tlsEdges: () => ({
    hasName: () => false,
    routeAt: () => ({ serve: async () => false }),
    openPorts() {},
    closePorts() {},
  }),
  relays: null,
});

function relaysOf(self: string, ca: string, owner: () => NodePlace | undefined): Relays {
  return new Relays({
    tickets: new RelayTickets(() => ['key'], self, Date.now),
    commonName: 'api.localhost',
    nodes: { ...othersWith(owner), primary: owner() },
    authority: () => ca,
    isOurs: () => false,
    dial: NO_DATABASE,
    log: silentLog,
  });
}

/** An edge on free ports, with endpoints for servers of this process. */
export class TestEdge {
  httpPort = 0;
  httpsPort = 0;
  readonly ca: LocalCa;
  /** Another node of a cluster, which clients reach and which serves nothing. */
  #wrongNode: EdgeServer | null = null;
  readonly #edge: EdgeServer;
  readonly #directory: Directory;
  readonly #dir: string;
  readonly #upstreams: NetServer[] = [];

  private constructor(edge: EdgeServer, directory: Directory, ca: LocalCa, dir: string) {
    this.#edge = edge;
    this.#directory = directory;
    this.ca = ca;
    this.#dir = dir;
  }

  static async start(
    options: Partial<
      Pick<
        EdgeServerOptions,
        'responseTimeout' | 'tlsLimits' | 'httpLimits' | 'domainCertificates' | 'challenges' | 'agents' | 'services'
      > &
        Pick<EdgeContext, 'log' | 'counters'>
    > = {},
  ): Promise<TestEdge> {
    const dir = await mkdtemp(join(tmpdir(), 'edge-'));
    const ca = await openLocalCa(dir, silentLog);
    const endpoints = new Directory();
    const { log = silentLog, counters = new EdgeCounters(), ...own } = options;
    const common = { ...withoutParts(), ca };
    const relays = THROUGH_WRONG_NODE ? { relays: relaysOf(OWNER, ca.caPem, () => undefined) } : {};
    const edge = new EdgeServer(edgeContext({ endpoints, counters, log }), { ...common, ...own, ...relays });
    const test = new TestEdge(edge, endpoints, ca, dir);
    Object.assign(test, await edge.start());
    const { connections: _owners, ...tlsLimits } = options.tlsLimits ?? {};
    const { connections: _clients, ...httpLimits } = options.httpLimits ?? {};
    if (THROUGH_WRONG_NODE) await test.#startWrongNode({ ...common, tlsLimits, httpLimits });
    return test;
  }

  async #startWrongNode(options: EdgeServerOptions): Promise<void> {
    const owner = { id: OWNER, host: '127.0.0.1', port: this.httpsPort };
    const relays = relaysOf('wrong', this.ca.caPem, () => owner);
    this.#wrongNode = new EdgeServer(edgeContext(), { ...options, relays });
    Object.assign(this, await this.#wrongNode.start());
  }

  /** Puts an endpoint online for an HTTP server with this handler. */
  async serve(
    host: string,
    handler: RequestListener | Server,
    options: { protocol?: EndpointProtocol; policy?: object; frame?: PolicyFrame } = {},
  ): Promise<DirectEndpoint> {
    const server = typeof handler === 'function' ? createServer(handler) : handler;
    return this.serveRaw(host, server, options);
  }

  /** Puts an endpoint online for any server. */
  async serveRaw(
    host: string,
    server: NetServer,
    { protocol = 'http', policy, frame }: { protocol?: EndpointProtocol; policy?: object; frame?: PolicyFrame } = {},
  ): Promise<DirectEndpoint> {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    this.#upstreams.push(server);
    const endpoint = new DirectEndpoint(host, protocol, (server.address() as AddressInfo).port, policy ?? null, frame);
    this.#directory.byHost.set(host, endpoint);
    return endpoint;
  }

  /** Takes an endpoint offline. */
  remove(endpoint: GatewayEndpoint): void {
    this.#directory.byHost.delete(endpoint.host);
    this.#directory.emit('removed', endpoint);
  }

  /** Sends raw bytes to the HTTP port; resolves with the whole response once the edge closes the connection. */
  async raw(bytes: string): Promise<string> {
    const socket = this.connect();
    socket.write(bytes, 'latin1');
    return (await collect(socket)).toString('latin1');
  }

  /** Connects to the HTTP port. */
  connect(): Socket {
    return connect(this.httpPort, '127.0.0.1').on('error', () => {});
  }

  async close(): Promise<void> {
    await Promise.all([this.#edge.stop(), this.#wrongNode?.stop()]);
    for (const server of this.#upstreams) {
      server.close();
      if ('closeAllConnections' in server) (server as Server).closeAllConnections();
    }
    await rm(this.#dir, { recursive: true });
  }
}

/** The bytes of a stream until it ends or fails. */
export async function collect(stream: Duplex | AsyncIterable<Buffer>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of stream) chunks.push(chunk as Buffer);
  } catch {
    // Callers want the bytes before the failure.
  }
  return Buffer.concat(chunks);
}
