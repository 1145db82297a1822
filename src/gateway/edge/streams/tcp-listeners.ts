import { createServer, type Server, type Socket } from 'node:net';
import { LoadBalancers } from '../../../lib/network/load-balancers.ts';
import { isWithin } from '../../../lib/network/port-range.ts';
import { noteArrival } from '../../../lib/time/loop-turn.ts';
import type { EdgeContext, GatewayContext } from '../../context/gateway-context.ts';
import type { GatewayEndpoint, InternalLookupFor, RefusesClient } from '../../endpoints/online-endpoint.ts';
import type { NamedPort, PortNames } from '../../endpoints/port-names.ts';
import type { PortOpener } from '../../endpoints/tcp-port-allocator.ts';
import { resetConnection } from '../http/error-response.ts';
import type { Relays } from '../relays/relays.ts';
import { ConnectionSlots } from '../tls/connection-slots.ts';
import { StreamProxy } from './stream-proxy.ts';

/** Concurrent connections on each port; see {@link ConnectionSlots}. */
const MAX_CONNECTIONS = 8192;

interface OpenPort {
  readonly server: Server;
  readonly listening: Promise<void>;
  accept(client: Socket): void;
  /** How many want it to be open. */
  holders: number;
}

/** The public ports of tcp endpoints, and of names that are in no DNS. Each is open while an endpoint has it, here or at another node. */
export class TcpListeners implements PortOpener {
  readonly #ports = new Map<number, OpenPort>();
  readonly #clients = new Set<Socket>();
  readonly #total: ConnectionSlots;
  readonly #streams: StreamProxy;
  #isStopped = false;
  readonly #onRemoved = (endpoint: GatewayEndpoint) => this.#streams.remove(endpoint);

  constructor(
    private readonly context: EdgeContext & {
      shares: Pick<GatewayContext['shares'], 'tcpConnections'>;
      endpoints: { onTcpPort(port: number): GatewayEndpoint | undefined };
    },
    private readonly own: {
      internal: InternalLookupFor;
      isRefused: RefusesClient;
      relays: Relays | null;
      /** Names that clients reach at ports; left out or null: none. */
      named?: Pick<PortNames, 'range' | 'nameAt'> | null;
      /** Serves their clients. */
      edge?: { acceptAt(client: Socket, at: NamedPort): void };
    },
  ) {
    const { internal, relays } = own;
    const { options, shares } = context;
    this.#total = new ConnectionSlots({ limit: shares.tcpConnections, closeIdle: () => false });
    this.#streams = new StreamProxy(context, { internal, idleTimeout: options.edgeLimits?.streamIdleTimeout });
    context.endpoints.on('removed', this.#onRemoved);
    relays?.on('tcp', (client, port) => this.accept(client, port));
  }

  async open(port: number): Promise<void> {
    if (this.#isStopped) throw new Error('the gateway stops');
    const opened = this.#ports.get(port) ?? this.#listen(port);
    this.#ports.set(port, opened);
    opened.holders += 1;
    try {
      await opened.listening;
    } catch (error) {
      if (this.#ports.get(port) === opened) this.#ports.delete(port);
      throw error;
    }
  }

  #listen(port: number): OpenPort {
    const { options, balancers, log } = this.context;
    const { range = null } = this.own.named ?? {};
    const isNamed = range !== null && isWithin(port, [range]);
    // Over TLS, both directions end together.
    const server = createServer({ allowHalfOpen: !isNamed, noDelay: true });
    const slots = new ConnectionSlots({
      limit: options.edgeLimits?.connections ?? MAX_CONNECTIONS,
      closeIdle: () => false,
    });
    const accept = (client: Socket) => {
      if (this.#total.take(client) && slots.take(client)) this.#serve(client, port);
    };
    const identified = LoadBalancers.before(balancers, accept);
    server.on('connection', (socket) => {
      noteArrival();
      identified(socket);
    });
    const listening = new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.once('close', () => reject(new Error('closed before it was open')));
      server.listen(port, options.host, resolve);
    });
    server.once('listening', () => {
      server.on('error', (error) => log.error({ err: error, port }, 'tcp endpoint listener failed'));
    });
    return { server, listening, accept, holders: 0 };
  }

  /** Takes back one {@link open}. */
  close(port: number): void {
    const opened = this.#ports.get(port);
    if (opened === undefined) return;
    opened.holders -= 1;
    if (opened.holders > 0) return;
    opened.server.close();
    this.#ports.delete(port);
  }

  /** Takes a connection that another node has passed on. */
  accept(client: Socket, port: number): void {
    const opened = this.#ports.get(port);
    if (opened) opened.accept(client);
    else resetConnection(client);
  }

  clients(): Iterable<Socket> {
    return this.#clients;
  }

  /** Accepts no further connections; those that are open go on. */
  stopListening(): void {
    this.#isStopped = true;
    for (const { server } of this.#ports.values()) server.close();
    this.#ports.clear();
  }

  stop(): void {
    this.stopListening();
    this.context.endpoints.off('removed', this.#onRemoved);
    for (const client of this.#clients) client.destroy();
  }

  #serve(client: Socket, port: number): void {
    this.#clients.add(client);
    client.once('close', () => this.#clients.delete(client));
    // An error is followed by 'close'.
    client.on('error', () => {});
    const { isRefused, relays, named, edge } = this.own;
    const isNamed = named?.range ? isWithin(port, [named.range]) : false;
    const name = isNamed ? named?.nameAt(port) : null;
    if (name && edge) {
      edge.acceptAt(client, { name, port });
      return;
    }
    const endpoint = this.context.endpoints.onTcpPort(port);
    const elsewhere = relays?.isRelayed(client) ? undefined : relays?.nodes.withTcpPort(port, endpoint !== undefined);
    if (endpoint && isRefused(client)) this.#streams.deny(client, endpoint);
    else if (elsewhere && (!endpoint || endpoint.isStalled)) relays?.send(client, elsewhere, port);
    else if (endpoint) this.#streams.serve(client, endpoint);
    else resetConnection(client);
  }
}
