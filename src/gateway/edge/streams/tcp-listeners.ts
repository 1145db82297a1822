import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import type { Log } from '../../../lib/log/log.ts';
import { LoadBalancers } from '../../../lib/network/load-balancers.ts';
import { noteArrival } from '../../../lib/time/loop-turn.ts';
import type { EdgeLimits } from '../../../settings/gateway-settings.ts';
import type { EndpointDirectory, GatewayEndpoint, InternalLookup } from '../../endpoints/endpoint.ts';
import type { PortOpener } from '../../endpoints/tcp-port-allocator.ts';
import type { TrafficCounters } from '../../metrics/traffic-counters.ts';
import { resetConnection } from '../http/error-response.ts';
import { ConnectionSlots } from '../tls/connection-slots.ts';
import { StreamProxy } from './stream-proxy.ts';

export interface TcpListenersOptions {
  host: string;
  endpoints: Pick<EndpointDirectory, 'internal' | 'on' | 'off'> & {
    onTcpPort(port: number): GatewayEndpoint | undefined;
  };
  limits?: Pick<EdgeLimits, 'connections' | 'streamIdleTimeout'> | undefined;
  connections: number;
  balancers: LoadBalancers | null;
  counters: TrafficCounters;
  log: Log;
}

/** Concurrent connections on each port; see {@link ConnectionSlots}. */
const MAX_CONNECTIONS = 8192;

/** The public ports of tcp endpoints. Each is open while a session holds it. */
export class TcpListeners implements PortOpener {
  readonly #servers = new Map<number, Server>();
  readonly #clients = new Set<Socket>();
  readonly #total: ConnectionSlots;
  readonly #streams: StreamProxy;
  readonly #onRemoved = (endpoint: GatewayEndpoint) => this.#streams.remove(endpoint);

  constructor(private readonly options: TcpListenersOptions) {
    const { endpoints, limits, connections, counters, log } = options;
    this.#total = new ConnectionSlots({ limit: connections, closeIdle: () => false });
    const internal: InternalLookup = (...address) => endpoints.internal(...address);
    this.#streams = new StreamProxy({ internal, idleTimeout: limits?.streamIdleTimeout, counters, log });
    endpoints.on('removed', this.#onRemoved);
  }

  async open(port: number): Promise<void> {
    const { host, limits, balancers, log } = this.options;
    const server = createServer({ allowHalfOpen: true, noDelay: true });
    const slots = new ConnectionSlots({ limit: limits?.connections ?? MAX_CONNECTIONS, closeIdle: () => false });
    const identified = LoadBalancers.before(balancers, (client) => {
      if (this.#total.take(client) && slots.take(client)) this.#serve(client, port);
    });
    server.on('connection', (socket) => {
      noteArrival();
      identified(socket);
    });
    server.listen(port, host);
    await once(server, 'listening');
    server.on('error', (error) => log.error({ err: error, port }, 'tcp endpoint listener failed'));
    this.#servers.set(port, server);
  }

  close(port: number): void {
    this.#servers.get(port)?.close();
    this.#servers.delete(port);
  }

  stop(): void {
    this.options.endpoints.off('removed', this.#onRemoved);
    for (const port of [...this.#servers.keys()]) this.close(port);
    for (const client of this.#clients) client.destroy();
  }

  #serve(client: Socket, port: number): void {
    this.#clients.add(client);
    client.once('close', () => this.#clients.delete(client));
    // An error is followed by 'close'.
    client.on('error', () => {});
    const endpoint = this.options.endpoints.onTcpPort(port);
    if (endpoint) this.#streams.serve(client, endpoint);
    else resetConnection(client);
  }
}
