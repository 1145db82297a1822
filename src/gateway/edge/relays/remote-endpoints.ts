import type { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { text } from 'node:stream/consumers';
import {
  connect as connectTls,
  createSecureContext,
  rootCertificates,
  type SecureContext,
  type TLSSocket,
} from 'node:tls';
import type { ByteChannel } from '../../../agent-protocol/byte-channel.ts';
import { ChannelDuplex } from '../../../agent-protocol/channel-duplex.ts';
import { ApiError } from '../../../lib/errors.ts';
import { availableMemory, MemoryBudget } from '../../../lib/memory-budget.ts';
import { clientNetwork, hostOf } from '../../../lib/network/ip-address.ts';
import { type ConnectionEnds, parseProxyHeader } from '../../../lib/network/proxy-protocol.ts';
import type { SecretsBox } from '../../../lib/secrets-box.ts';
import { withDeadline } from '../../../lib/time/deadline.ts';
import { NO_POLICY } from '../../../traffic-policy/engine.ts';
import type { TlsTermination } from '../../../traffic-policy/policy-subjects.ts';
import {
  type ClientInfo,
  EDGE_TERMINATION,
  type EndpointProtocol,
  type GatewayEndpoint,
  type InternalAddress,
} from '../../endpoints/online-endpoint.ts';
import { EndpointTraffic } from '../../endpoints/traffic-counts.ts';
import { confirmedLink } from './confirmed-link.ts';
import { LinkChannel, type OpenedLink } from './link-channel.ts';
import { type LinkHealth, NO_HEALTH } from './node-health.ts';
import { CONNECT_MS, connectTo, type Leg, type NodePlace, type OtherNodes, openedTo } from './other-nodes.ts';
import { type NodeQuestion, type RelayedFor, type RelayedPort, RelayTickets } from './relay-tickets.ts';

/**
 * What another gateway serves of the requests and connections that are routed here. They go there over connections of their
 * client's own, as if the client had opened those: policies, limits and counters are that gateway's.
 */
export class RemoteEndpoint implements GatewayEndpoint {
  readonly id: string;
  readonly url: string;
  readonly port = 0;
  readonly isRemote = true;
  readonly policy = NO_POLICY;
  /** Whether a connection without demands of other policies stays encrypted is for that gateway to say. */
  readonly tls: TlsTermination | null;
  readonly websocketTcp = false;
  readonly feed = null;
  /** So that no two clients share a connection. */
  readonly proxyProtocol = 2;
  readonly http2Upstream = false;
  readonly forwardsTo = '';
  readonly traffic = new EndpointTraffic();

  /** @param open opens a connection for a client; `writesForwarded`: see {@link GatewayEndpoint} */
  constructor(
    readonly protocol: EndpointProtocol,
    readonly host: string,
    private readonly open: (client: ClientInfo) => Promise<OpenedLink>,
    private readonly health: LinkHealth,
    readonly writesForwarded: boolean,
  ) {
    this.url = `${protocol}://${host}`;
    this.id = this.url;
    this.tls = isHttp(protocol) ? EDGE_TERMINATION : null;
  }

  openChannel(client: ClientInfo): ByteChannel {
    return new LinkChannel(this.open(client), this.health);
  }

  openStream(client: ClientInfo): Duplex {
    return new ChannelDuplex(this.openChannel(client));
  }
}

const isHttp = (protocol: EndpointProtocol) => protocol === 'http' || protocol === 'https';

/** Of a connection of this node's own. */
function endsOf({ localAddress, localPort, remoteAddress, remotePort }: Socket): ConnectionEnds {
  return {
    clientIp: localAddress ?? '',
    clientPort: localPort ?? 0,
    serverIp: remoteAddress ?? '',
    serverPort: remotePort ?? 0,
  };
}

/** @throws when the client has no addresses */
function endsOfClient({ proxyHeader }: ClientInfo): ConnectionEnds {
  const ends = parseProxyHeader(proxyHeader ?? Buffer.alloc(0))?.ends;
  if (!ends) throw new Error('a client without addresses');
  return ends;
}

function openedLink(stream: Duplex, socket: Socket, leg: Leg): OpenedLink {
  const reset = () => {
    socket.resetAndDestroy();
    stream.destroy();
  };
  return { stream, leg, reset };
}

const MIB = 1_048_576;
/** What a connection to another node takes at most, as measured: TLS, and bytes that it has yet to pass on. */
const LINK_BYTES = 128 * 1024;
/** Share of the machine's or container's memory for those connections. */
const LINK_SHARE = 1 / 8;
const [LEAST_LINKS, MOST_LINKS] = [32 * MIB, 512 * MIB];

const tooManyLinks = () =>
  new ApiError(503, 'ERR_NGROK_3007', 'This gateway has too many connections to the gateway that serves this.', {
    retryAfter: 1,
  });

/** Milliseconds for the handshake of the last node that serves something: it may be busy. Meanwhile, its memory is taken. */
const LAST_HANDSHAKE_MS = 3_000;

/** Names at other nodes that requests have lately been for. */
const MAX_ENDPOINTS = 4096;

export interface RemoteEndpointsOptions {
  tickets: RelayTickets;
  nodes: Pick<OtherNodes, 'withShared' | 'withInternal'>;
  /** A name that every node has a certificate for. */
  commonName: string;
  /** PEM of CAs that other nodes may have theirs from, besides the public ones. */
  authority: () => string;
  /** Whether a certificate is the one that this node has for a name, too. */
  isOurs: (host: string, certificate: X509Certificate) => boolean;
  health: LinkHealth;
  /** Bytes for connections to other nodes; omitted: a share of the memory. */
  linkMemory?: number;
  forget: (endpoint: RemoteEndpoint) => void;
}

/** What other nodes serve of the requests that are decrypted here. */
export class RemoteEndpoints {
  readonly #endpoints = new Map<string, RemoteEndpoint>();
  #authorities: { of: string; context: SecureContext } | undefined;
  readonly #memory: MemoryBudget;

  constructor(private readonly options: RemoteEndpointsOptions) {
    const share = Math.min(MOST_LINKS, Math.max(LEAST_LINKS, availableMemory() * LINK_SHARE));
    this.#memory = new MemoryBudget(options.linkMemory ?? share);
  }

  at(scheme: 'http' | 'https', host: string): RemoteEndpoint | undefined {
    const { nodes } = this.options;
    const find = () => nodes.withShared(scheme, host);
    const node = find();
    if (node === undefined) return undefined;
    const open = (from: ClientInfo) =>
      this.#limited(from, () => {
        // By now, it may be elsewhere.
        const there = find() ?? node;
        return scheme === 'https'
          ? this.#openSecured(from, there, { port: 'tls' }, host)
          : this.#open(from, there, { port: 'http' });
      });
    const { health } = this.options;
    return this.#endpoint(`${node.id} ${scheme}://${host}`, () => new RemoteEndpoint(scheme, host, open, health, true));
  }

  internal(address: InternalAddress): RemoteEndpoint | undefined {
    const { nodes, commonName, health } = this.options;
    const find = () => nodes.withInternal(address);
    const node = find();
    if (node === undefined) return undefined;
    const { protocol, host, port } = address;
    const use = { port: isHttp(protocol) ? ('tls' as const) : ('stream' as const), internal: address };
    const open = (from: ClientInfo) =>
      this.#limited(from, () => {
        const there = find() ?? node;
        return from.passthrough
          ? this.#open(from, there, { port: 'tls', internal: address })
          : this.#openSecured(from, there, use, commonName);
      });
    const key = `${node.id} internal ${protocol}://${host}:${port}`;
    return this.#endpoint(key, () => new RemoteEndpoint(protocol, host, open, health, false));
  }

  /** Resolves when a node has proved to be there. @throws when it does not */
  async findAlive(node: NodePlace): Promise<void> {
    const link = await openedTo(node);
    try {
      link.write(this.options.tickets.issue(endsOf(link), node.id, { port: 'alive', isLast: true }));
      await this.#secure(link, this.options.commonName);
    } finally {
      link.destroy();
    }
  }

  /** @throws when the node does not answer in time */
  async ask(node: NodePlace, question: NodeQuestion, details = ''): Promise<string> {
    return this.own(node, question, async (secured, link) => {
      if (details !== '') secured.write(`${details}\n`);
      const answer = await withDeadline(text(secured), `the answer to ${question}`, CONNECT_MS);
      link.destroy();
      return answer;
    });
  }

  /** Opens a connection of this node's own, over TLS; `begin` makes of it what is returned. @throws as {@link connectTo} */
  own<T>(node: NodePlace, port: RelayedPort, begin: (secured: TLSSocket, link: Socket) => Promise<T>): Promise<T> {
    const { health, tickets, commonName } = this.options;
    return connectTo(node, health.failed, async (link) => {
      link.write(tickets.issue(endsOf(link), node.id, { port, isLast: true }));
      return begin(await this.#secure(link, commonName), link);
    });
  }

  /**
   * Opens a connection unless they are too many: a client over HTTP/2 can need one for each of its requests. A client network
   * leaves as much for others as it takes.
   *
   * @throws {ApiError} 503
   */
  #limited({ address }: ClientInfo, open: () => Promise<OpenedLink>): Promise<OpenedLink> {
    const share = this.#memory.shareOf(clientNetwork(hostOf(address)));
    if (!share.leavesRoom(LINK_BYTES)) throw tooManyLinks();
    share.reserve(LINK_BYTES);
    const release = () => share.release(LINK_BYTES);
    const opening = open();
    opening.then(({ stream }) => (stream.closed ? release() : stream.once('close', release)), release);
    return opening;
  }

  #endpoint(key: string, make: () => RemoteEndpoint): RemoteEndpoint {
    const endpoint = this.#endpoints.get(key) ?? make();
    // The last one that was used is the last to be forgotten.
    this.#endpoints.delete(key);
    this.#endpoints.set(key, endpoint);
    if (this.#endpoints.size > MAX_ENDPOINTS) this.#forgetOldest();
    return endpoint;
  }

  #forgetOldest(): void {
    const [[key, endpoint] = []] = this.#endpoints;
    if (key === undefined || endpoint === undefined) return;
    this.#endpoints.delete(key);
    this.options.forget(endpoint);
  }

  /** @param name that the certificate of the node has to be for */
  async #openSecured(from: ClientInfo, node: NodePlace, use: Partial<RelayedFor>, name: string): Promise<OpenedLink> {
    const { health, tickets } = this.options;
    const ends = endsOfClient(from);
    return connectTo(node, health.failed, async (link, leg) => {
      link.write(tickets.issue(ends, leg.node.id, { ...use, isLast: true }));
      return openedLink(await this.#secure(link, name, leg.isLast ? LAST_HANDSHAKE_MS : CONNECT_MS), link, leg);
    });
  }

  async #open(from: ClientInfo, node: NodePlace, use: Partial<RelayedFor>): Promise<OpenedLink> {
    const { health, tickets } = this.options;
    const ends = endsOfClient(from);
    return connectTo(node, health.failed, async (link, leg) => {
      const header = (confirms: boolean) => tickets.issue(ends, leg.node.id, { ...use, isLast: true, confirms });
      const confirmed = await confirmedLink(link, leg, { health, header, early: null });
      return openedLink(confirmed, confirmed, leg);
    });
  }

  async #secure(link: Socket, host: string, patienceMs = CONNECT_MS): Promise<TLSSocket> {
    const { authority, isOurs } = this.options;
    // Reading all authorities takes many milliseconds.
    const of = authority();
    if (this.#authorities?.of !== of)
      this.#authorities = { of, context: createSecureContext({ ca: [...rootCertificates, of] }) };
    const { context: secureContext } = this.#authorities;
    const secured = connectTls({
      ...{ socket: link, servername: host, secureContext, ALPNProtocols: ['http/1.1'] },
      rejectUnauthorized: false,
    });
    try {
      await withDeadline(once(secured, 'secureConnect'), `the handshake for ${host}`, patienceMs);
      const certificate = secured.getPeerX509Certificate();
      if (secured.authorized || (certificate && isOurs(host, certificate))) return secured;
      throw new Error(`no gateway of this cluster: its certificate for ${host} is not trusted`);
    } catch (error) {
      secured.destroy();
      throw error;
    }
  }
}

export type NodeAsker = RemoteEndpoints['ask'];

/** Asks nodes for one that serves nothing itself, such as a command on the machine of a node. */
export function nodeAsker(by: string, box: SecretsBox, commonName: string, now: () => number): NodeAsker {
  const none = () => undefined;
  const remote = new RemoteEndpoints({
    tickets: new RelayTickets(() => box.keysFor(RelayTickets.PURPOSE), by, now),
    nodes: { withShared: none, withInternal: none },
    commonName,
    // That it accepts the ticket says who it is.
    authority: () => '',
    isOurs: () => true,
    health: NO_HEALTH,
    forget: none,
  });
  return (node, question) => remote.ask(node, question);
}
