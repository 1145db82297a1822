import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import type { Log } from '../../../lib/log/log.ts';
import { setAddresses } from '../../../lib/network/load-balancers.ts';
import { parseProxyHeader } from '../../../lib/network/proxy-protocol.ts';
import { trackBuffer } from '../../../lib/process/minor-gc.ts';
import { peek } from '../../../lib/tls/client-hello.ts';
import type { InternalAddress } from '../../endpoints/online-endpoint.ts';
import { ClientConnection } from '../connections/connect-phase.ts';
import { pipeBoth } from '../connections/open-connections.ts';
import { GatewaySilent, gatewaySilent } from '../http/edge-errors.ts';
import { errorMessage, resetConnection } from '../http/error-response.ts';
import { hostNameOf } from '../http/headers.ts';
import { CONFIRMATION, confirmedLink } from './confirmed-link.ts';
import { DatabasePassages } from './database-passages.ts';
import { NodeHealth, type NodeLink } from './node-health.ts';
import { connectTo, type Leg, type NodePlace, type OtherNodes } from './other-nodes.ts';
import type { NodeQuestion, RelayedFor, RelayedPort } from './relay-tickets.ts';
import { type RemoteEndpoint, RemoteEndpoints, type RemoteEndpointsOptions } from './remote-endpoints.ts';

/** What comes from other nodes. */
interface RelayEvents {
  /** A connection to the port for plain HTTP, which a node has passed on. */
  http: [client: Socket];
  /** One to the port for agents alone, from a node that is emptied. Its ClientHello comes next. */
  agents: [agent: Socket];
  /** One to the port of tcp endpoints. */
  tcp: [client: Socket, port: number];
  /** A question, with what takes the answer. */
  asked: [question: NodeQuestion, answer: (text: Promise<string>) => void, details: string];
  /** A node stops that has passed agents on: their sessions end soon. */
  release: [node: string];
  /** A name at another node has had no request for long. */
  forgotten: [endpoint: RemoteEndpoint];
}

/** Clients name the host early. One that does not within so many bytes is served here. */
const MAX_HEAD = 16_384;
/** Connections whose first request is being read, each with that many bytes. Further ones are served here. */
const MAX_READING = 1024;
/** Milliseconds without a byte after which a connection whose last bytes were an answer is taken for idle. */
const IDLE_MS = 500;
/** Milliseconds for which an answer is expected after whatever has followed a client's last bytes. */
const EXPECTED_MS = 10_000;
/** Characters of what a node asks. */
const MAX_DETAILS = 8_192;
/** RFC 8555, 8.3. */
const VALIDATION_PATH = '/.well-known/acme-challenge/';

export interface RelaysOptions extends Omit<RemoteEndpointsOptions, 'forget' | 'health'> {
  nodes: OtherNodes;
  /** Connects to the server of the shared database that this node uses, on the direct way. @throws when it has none */
  dial: () => Promise<Socket>;
  log: Log;
}

/**
 * Passes connections on to the node that serves them, as they are: TLS, policies and limits are that node's. No connection is
 * passed on twice, and what serves the requests of one that was opened for another name passes none on, so that nodes which are
 * wrong about each other do not make a circle.
 */
export class Relays extends EventEmitter<RelayEvents> {
  readonly #health: NodeHealth;
  #reading = 0;
  readonly #relayed = new WeakMap<Socket, RelayedFor>();

  /** Connections that are passed on. */
  readonly #links = new Set<PassedOn>();
  readonly #remote: RemoteEndpoints;
  /** To the shared database, for nodes that are cut off from it. */
  readonly databases: DatabasePassages;

  constructor(private readonly options: RelaysOptions) {
    super();
    const { nodes, tickets, dial, log } = options;
    this.#health = new NodeHealth({ nodes, ask: (node) => this.#remote.findAlive(node), log });
    const forget = (endpoint: RemoteEndpoint) => void this.emit('forgotten', endpoint);
    this.#remote = new RemoteEndpoints({ ...options, forget, health: this.#health });
    this.databases = new DatabasePassages(tickets, this.#remote, dial);
  }

  /** Asks no node any more. */
  stop(): void {
    this.#health.stop();
  }

  get nodes(): OtherNodes {
    return this.options.nodes;
  }

  /** Whether another node has passed a connection on: it goes no further. */
  isRelayed(client: Socket): boolean {
    return this.#relayed.has(client);
  }

  /** Whether not even the requests of a connection go on to a further node. */
  isLast(client: Socket): boolean {
    return this.#relayed.get(client)?.isLast === true;
  }

  /** The internal endpoint that a connection or its requests are for; undefined: they are for those that they name. */
  internalOf(client: Socket): InternalAddress | undefined {
    return this.#relayed.get(client)?.internal;
  }

  /** Whether the bytes for an internal endpoint come in the TLS of two gateways, instead of in the client's. */
  isDecrypted(client: Socket): boolean {
    return this.#relayed.get(client)?.port === 'stream';
  }

  /**
   * Whether a request of a connection may have waited here for so long that the node which has passed it on has given it up. It
   * must not be done any more.
   */
  isVoid(client: Socket): boolean {
    return this.isRelayed(client) && this.#health.isVoid;
  }

  /** What serves another node itself, over TLS; undefined: the connection is one of a client. */
  serviceFor(client: Socket): ((secured: TLSSocket) => Promise<void>) | undefined {
    const { port, by } = this.#relayed.get(client) ?? {};
    if (port === 'database') return (secured) => this.databases.serve(secured);
    if (port === 'alive') return async (secured) => void secured.end();
    if (port === 'expected') return async (secured) => void secured.end(this.options.nodes.expectedHere());
    if (port === 'release' && by !== undefined) {
      return async (secured) => {
        this.emit('release', by);
        secured.end();
      };
    }
    const hasDetails = port === 'history' || port === 'probes';
    const isQuestion = hasDetails || port === 'counted' || port === 'metrics';
    if (!isQuestion || this.listenerCount('asked') === 0) return undefined;
    return async (secured) => {
      const details = hasDetails ? await detailsOf(secured) : '';
      const answer = await new Promise<string>((resolve) => void this.emit('asked', port, resolve, details));
      secured.end(answer);
    };
  }

  /** @throws when the node does not answer in time */
  ask(node: NodePlace, question: NodeQuestion, details = ''): Promise<string> {
    return this.#remote.ask(node, question, details);
  }

  /** A connection continues over TLS. */
  secured(client: Socket, over: Socket): void {
    const relayed = this.#relayed.get(client);
    if (relayed) this.#relayed.set(over, relayed);
  }

  /**
   * The node that a connection to the port for plain HTTP is for, by its first request, of which nothing is read.
   * @param patienceMs for the first request to name its host
   */
  async nodeForHttp(client: Socket, patienceMs: number): Promise<NodePlace | undefined> {
    if (this.isRelayed(client) || this.#reading >= MAX_READING) return undefined;
    const { nodes } = this.options;
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), patienceMs);
    this.#reading += 1;
    const request = await peek(client, parseHead, late.signal);
    this.#reading -= 1;
    clearTimeout(timer);
    if (request === null) return undefined;
    if (request.target.startsWith(VALIDATION_PATH)) return nodes.primary;
    const host = hostNameOf(request.host);
    if (!nodes.knows('http', host)) await nodes.catchUp();
    return nodes.withHttpName(host);
  }

  /** The node that a connection over TLS is for; undefined: this one serves it, or none does. */
  async nodeForTls(client: Socket, host: string): Promise<NodePlace | undefined> {
    if (this.isRelayed(client)) return undefined;
    const { nodes } = this.options;
    if (!nodes.knows('tls', host)) await nodes.catchUp();
    return nodes.withName(host);
  }

  /** What serves a request that has been decrypted here, or came on a connection for another name; undefined: no other node. */
  endpointFor(client: Socket, scheme: 'http' | 'https', host: string): RemoteEndpoint | undefined {
    return this.isLast(client) ? undefined : this.#remote.at(scheme, host);
  }

  /** What serves an internal endpoint that is online at another node; undefined: no other node. */
  internalFor(client: Socket, address: InternalAddress): RemoteEndpoint | undefined {
    return this.isLast(client) ? undefined : this.#remote.internal(address);
  }

  /**
   * Passes an agent on while this node is emptied: a refused SDK may not try again for two minutes.
   *
   * @param passed called when another node has it @returns whether it is; otherwise, it is served here
   */
  passAgentOn(agent: Socket, port: 'tls' | 'agents', passed = () => {}): boolean {
    const node = this.isRelayed(agent) ? undefined : this.options.nodes.forAgents;
    if (node === undefined) return false;
    this.pass(agent, node, port, true).then(passed, () => refuse(agent, port));
    return true;
  }

  /** Agents whose sessions are at other nodes while this one is emptied. */
  *agents(): Iterable<Socket> {
    for (const { isAgent, client } of this.#links) if (isAgent) yield client;
  }

  /**
   * Has other nodes end the sessions of agents that this one has passed on, before it stops: requests in them would be lost. Clients
   * finish what they have under way first, for a moment.
   */
  releaseAgents(): void {
    const nodes = new Map([...this.#links].flatMap(({ isAgent, node }) => (isAgent ? [[node.id, node]] : [])));
    // Why one does not answer is logged where it is asked. Earlier versions do not answer.
    for (const node of nodes.values()) this.ask(node, 'release').catch(() => {});
  }

  /** The node that has passed an agent on; undefined: it has come here itself. */
  passedOnBy(agent: Socket): string | undefined {
    return this.#relayed.get(agent)?.by;
  }

  /** @param client nothing of it has been read */
  send(client: Socket, node: NodePlace, port: RelayedPort): void {
    client.on('error', () => {});
    this.pass(client, node, port).catch(() => refuse(client, port));
  }

  /** @param client nothing of it has been read, also when this fails @throws when no node that serves it can be reached */
  async pass(client: Socket, node: NodePlace, port: RelayedPort, isAgent = false): Promise<void> {
    const { tickets } = this.options;
    const from = new ClientConnection(client, 0, null);
    // As long as no node has answered it, any of them can have it.
    const early: Buffer | null = beginsWithHello(port) ? client.read() : null;
    const health = this.#health;
    const begin = async (link: Socket, leg: Leg) => {
      const header = (confirms: boolean) => tickets.issue(from, leg.node.id, { port, confirms });
      return { link: await confirmedLink(link, leg, { health, header, early }), leg };
    };
    const { link, leg } = await connectTo(node, health.failed, begin).catch((error: unknown) => {
      if (early) client.unshift(early);
      throw error;
    });
    if (client.destroyed) return void link.destroy();
    client.allowHalfOpen = true;
    const passedOn = new PassedOn({ client, link, port, leg, isAgent });
    this.#links.add(passedOn);
    const unwatch = health.watch(passedOn);
    link.once('close', () => {
      this.#links.delete(passedOn);
      unwatch();
    });
  }

  /** Ends passed-on connections of clients on which nothing waits for an answer. */
  closeIdle(): void {
    const now = performance.now();
    for (const passedOn of this.#links) passedOn.endIfIdle(now);
  }

  /**
   * Takes a connection of another node: from now on, its client is who that node says. `socket` has unread bytes, no
   * ClientHello.
   * @returns whether its ClientHello comes next, or it has been taken care of; null: no node's, and nothing of it is read
   */
  async receive(socket: Socket): Promise<'tls' | 'served' | null> {
    const header = await peek(socket, parseProxyHeader);
    if (header === null || socket.destroyed) return null;
    const bytes: Buffer = socket.read(header.length);
    const ticket = this.options.tickets.redeem(bytes, header);
    if (ticket === null) {
      socket.unshift(bytes);
      return null;
    }
    if (header.ends) setAddresses(socket, header.ends);
    const { port } = ticket;
    this.#relayed.set(socket, ticket);
    if (ticket.confirms) socket.write(Buffer.from([CONFIRMATION]));
    if (port === 'agents') {
      if (!this.emit('agents', socket)) resetConnection(socket);
      return 'served';
    }
    if (typeof port === 'string' && port !== 'http') return 'tls';
    socket.allowHalfOpen = true;
    if (port === 'http') this.emit('http', socket);
    else this.emit('tcp', socket, port);
    return 'served';
  }
}

/** A client's or an agent's connection and the one to the node that serves it. */
class PassedOn implements NodeLink {
  readonly node: NodePlace;
  readonly spare: NodePlace | undefined;
  readonly client: Socket;
  readonly isAgent: boolean;
  readonly #link: Socket;
  readonly #port: RelayedPort;
  readonly #unpipe: () => void;
  /** When the first bytes were sent that nothing has followed; null: something has. */
  #unansweredSince: number | null = null;
  #sentAt = Number.NEGATIVE_INFINITY;
  #answeredAt: number | null = null;

  constructor(of: { client: Socket; link: Socket; port: RelayedPort; leg: Leg; isAgent: boolean }) {
    const { client, link, port, leg, isAgent } = of;
    this.node = leg.node;
    this.spare = leg.spare;
    this.client = client;
    this.isAgent = isAgent;
    this.#link = link;
    this.#port = port;
    // A ClientHello is on its way.
    if (beginsWithHello(port)) this.#sent();
    client.on('data', ({ length }: Buffer) => {
      trackBuffer(length);
      this.#sent();
    });
    link.on('data', ({ length }: Buffer) => {
      trackBuffer(length);
      this.#unansweredSince = null;
      this.#answeredAt = performance.now();
    });
    this.#unpipe = pipeBoth(client, link);
  }

  #sent(): void {
    this.#sentAt = performance.now();
    this.#unansweredSince ??= this.#sentAt;
  }

  /** What followed may be no answer: nodes send tickets of TLS when they please, and settings of HTTP/2. */
  get unansweredSince(): number | null {
    if (this.#unansweredSince !== null) return this.#unansweredSince;
    return performance.now() - this.#sentAt < EXPECTED_MS ? this.#answeredAt : null;
  }

  giveUp(): void {
    this.#unpipe();
    // What is still on its way must not arrive later.
    this.#link.resetAndDestroy();
    refuse(this.client, this.#answeredAt === null ? this.#port : null);
  }

  /**
   * Ends it when the last bytes were an answer, and some time ago. A session of an agent stays as long as it can: its agent might come
   * back here, only to be lost once more.
   */
  endIfIdle(now: number): void {
    if (this.isAgent) return;
    if (this.#unansweredSince !== null || this.#answeredAt === null || now - this.#answeredAt < IDLE_MS) return;
    this.client.end();
    this.#link.end();
  }
}

/** Whether the node reads the ClientHello of such connections before it passes them on. */
const beginsWithHello = (port: RelayedPort) => port === 'tls' || port === 'agents';

/** Ends a client's connection that no node serves. @param port null: an answer has begun */
function refuse(client: Socket, port: RelayedPort | null): void {
  if (port === 'http' && !client.destroyed) client.end(errorMessage(gatewaySilent(new GatewaySilent())));
  else resetConnection(client);
}

/** Target and host of an HTTP/1.1 request; undefined: they have not arrived yet; null: no request, or it names no host */
function parseHead(bytes: Buffer): { target: string; host: string } | null | undefined {
  const text = bytes.toString('latin1', 0, MAX_HEAD).replace(/^(?:\r?\n)+/, '');
  if (!/^[!-~]*(?:[ \r]|$)/.test(text)) return null;
  const end = /\r?\n\r?\n/.exec(text);
  const head = end ? text.slice(0, end.index + end[0].length) : text;
  const host = /\nhost:[ \t]*([^\r\n]*)\r?\n/i.exec(head)?.[1];
  if (host === undefined) return end || bytes.length >= MAX_HEAD ? null : undefined;
  return { target: head.split(' ', 2)[1] ?? '', host: host.trim() };
}

/** The line that follows a question. @throws when it is too long, or the connection ends before */
async function detailsOf(secured: TLSSocket): Promise<string> {
  let text = '';
  for await (const piece of secured.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    text += piece.toString('utf8');
    if (text.length > MAX_DETAILS) throw new Error('a question of another gateway is too long');
    if (text.includes('\n')) return text.slice(0, text.indexOf('\n'));
  }
  throw new Error('a question of another gateway is incomplete');
}
