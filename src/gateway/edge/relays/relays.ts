import { once } from 'node:events';
import type { Socket } from 'node:net';
import { messageOf } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log/log.ts';
import { Repeats } from '../../../lib/log/repeats.ts';
import { peek } from '../../../lib/network/client-hello.ts';
import { hostPort } from '../../../lib/network/ip-address.ts';
import { setAddresses } from '../../../lib/network/load-balancers.ts';
import { parseProxyHeader } from '../../../lib/network/proxy-protocol.ts';
import { trackBuffer } from '../../../lib/process/minor-gc.ts';
import { withDeadline } from '../../../lib/time/deadline.ts';
import type { InternalAddress } from '../../endpoints/endpoint.ts';
import { ClientConnection } from '../connections/client-connection.ts';
import { pipeBoth } from '../connections/open-connections.ts';
import { resetConnection } from '../http/error-response.ts';
import { hostNameOf } from '../http/headers.ts';
import { connectTo, type NodePlace, type OnFailure, type OtherNodes } from './other-nodes.ts';
import type { NodeQuestion, RelayedFor, RelayedPort } from './relay-tickets.ts';
import { type RemoteEndpoint, RemoteEndpoints, type RemoteEndpointsOptions } from './remote-endpoints.ts';

/** Answers other nodes, and takes connections that they have passed on. */
interface RelayedConnections {
  http(client: Socket): void;
  tcp(client: Socket, port: number): void;
  answer(question: NodeQuestion): Promise<string>;
  /** A name at another node has had no request for long. */
  forget(endpoint: RemoteEndpoint): void;
}

/** Clients name the host early. One that does not within so many bytes is served here. */
const MAX_HEAD = 16_384;
/** Connections whose first request is being read, each with that many bytes. Further ones are served here. */
const MAX_READING = 1024;
/** Milliseconds in which a node begins to answer a ClientHello, if another one serves the name, too. */
const ANSWER_MS = 2_000;
/** Milliseconds without a byte after which a connection whose last bytes were an answer is taken for idle. */
const IDLE_MS = 500;
/** RFC 8555, 8.3. */
const VALIDATION_PATH = '/.well-known/acme-challenge/';

export interface RelaysOptions extends Omit<RemoteEndpointsOptions, 'forget' | 'onFailure'> {
  nodes: OtherNodes;
  log: Log;
}

/**
 * Passes connections on to the node that serves them, as they are: TLS, policies and limits are that node's. No connection is
 * passed on twice, and what serves the requests of one that was opened for another name passes none on, so that nodes which are
 * wrong about each other do not make a circle.
 */
export class Relays {
  readonly #failures = new Repeats();
  readonly #onFailure: OnFailure = ({ id, host, port }, error) => {
    this.nodes.failed(id);
    const times = this.#failures.timesDue(id);
    const facts = { node: id, address: hostPort(host, port), times, reason: messageOf(error) };
    if (times !== null) this.options.log.warn(facts, 'other gateway does not answer');
  };
  #reading = 0;
  readonly #relayed = new WeakMap<Socket, RelayedFor>();
  readonly accept: Partial<RelayedConnections> = {};

  /** Connections that are passed on: when their last answer came, and how much had been sent before. */
  readonly #links = new Map<Socket, { client: Socket; written: number; at: number }>();
  readonly #remote: RemoteEndpoints;

  constructor(private readonly options: RelaysOptions) {
    const forget = (endpoint: RemoteEndpoint) => this.accept.forget?.(endpoint);
    this.#remote = new RemoteEndpoints({ ...options, forget, onFailure: this.#onFailure });
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

  /** What answers the question of another node; undefined: the connection is one of a client. */
  answerTo(client: Socket): (() => Promise<string>) | undefined {
    const port = this.#relayed.get(client)?.port;
    const { answer } = this.accept;
    return answer && (port === 'counted' || port === 'metrics') ? () => answer(port) : undefined;
  }

  /** @throws when the node does not answer in time */
  ask(node: NodePlace, question: NodeQuestion): Promise<string> {
    return this.#remote.ask(node, question);
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

  /** @param client nothing of it has been read */
  send(client: Socket, node: NodePlace, port: RelayedPort): void {
    client.on('error', () => {});
    this.pass(client, node, port).catch(() => resetConnection(client));
  }

  /** @param client nothing of it has been read, also when this fails @throws when no node that serves it can be reached */
  async pass(client: Socket, node: NodePlace, port: RelayedPort): Promise<void> {
    const { tickets } = this.options;
    const from = new ClientConnection(client, 0, null);
    // As long as no node has answered it, any of them can have it.
    const hello: Buffer | null = port === 'tls' ? client.read() : null;
    const begin = async (link: Socket, { id, next }: NodePlace) => {
      link.write(tickets.issue(from, id, { port }));
      if (hello) link.write(hello);
      if (hello && next) await answered(link);
    };
    const link = await connectTo(node, this.#onFailure, begin).catch((error: unknown) => {
      if (hello) client.unshift(hello);
      throw error;
    });
    if (client.destroyed) return void link.destroy();
    client.allowHalfOpen = true;
    this.#track(client, link);
    pipeBoth(client, link);
  }

  #track(client: Socket, link: Socket): void {
    const state = { client, written: -1, at: 0 };
    this.#links.set(link, state);
    link.once('close', () => this.#links.delete(link));
    client.on('data', ({ length }: Buffer) => trackBuffer(length));
    link.on('data', ({ length }: Buffer) => {
      trackBuffer(length);
      state.written = link.bytesWritten;
      state.at = performance.now();
    });
  }

  /** Ends passed-on connections on which nothing waits for an answer. @returns how many are left */
  closeIdle(): number {
    const now = performance.now();
    for (const [link, { client, written, at }] of this.#links) {
      if (link.bytesWritten !== written || now - at < IDLE_MS) continue;
      client.end();
      link.end();
    }
    return this.#links.size;
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
    if (typeof port === 'string' && port !== 'http') return 'tls';
    socket.allowHalfOpen = true;
    if (port === 'http') this.accept.http?.(socket);
    else this.accept.tcp?.(socket, port);
    return 'served';
  }
}

/** @throws {Error} when a node ends the connection instead, or does not begin to answer in time */
async function answered(link: Socket): Promise<void> {
  await withDeadline(once(link, 'readable'), 'the answer to a ClientHello', ANSWER_MS);
  if (link.readableLength === 0) throw new Error('the gateway has ended the connection');
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
