import { EventEmitter } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { noteArrival } from '../../lib/time/loop-turn.ts';
import type { PolicyConnection, PolicyEndpoint } from '../../traffic-policy/policy-subjects.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import {
  ClientConnection,
  clientTls,
  findDestination,
  HelloTls,
  isAllowed,
  runConnectPhase,
} from '../edge/connections/connect-phase.ts';
import { resetConnection } from '../edge/http/error-response.ts';
import { type HelloClient, meetsClientDemands } from '../edge/tls/handshakes.ts';
import type { TlsEdgeRoute, TlsEdgeRouter, TlsRouteParts } from '../edge/tls-mux.ts';
import { coveringNames } from '../endpoints/domain-names.ts';
import type { EndpointPolicies } from '../endpoints/endpoint-policies.ts';
import type { LabeledUpstream, Labels, RefusesClient } from '../endpoints/online-endpoint.ts';
import type { Store } from '../store/store.ts';
import type { HttpResponseBackendRow, TlsEdgeRow, TunnelGroupBackendRow } from '../store/tls-edges.ts';
import { FixedResponses } from './fixed-responses.ts';
import { endpointOf, type PreparedEdge, prepareEdge, type ServedEdge } from './prepared-edge.ts';

/** The TLS edges by hostport, in memory: routing asks no database. Emits `changed` before a change is answered. */
export class TlsEdgeIndex extends EventEmitter<{ changed: [] }> {
  readonly #store: Pick<Store, 'database' | 'tlsEdges'>;
  readonly #rows = new Map<string, TlsEdgeRow>();
  readonly #served = new Map<string, ServedEdge>();
  readonly #hosts = new Map<string, number>();

  constructor(store: Pick<Store, 'database' | 'tlsEdges'>, log: Log) {
    super();
    this.#store = store;
    store.tlsEdges.takeTouched();
    for (const row of store.tlsEdges.where('id > ?', [''])) this.#add(row);
    store.database.onCommit(() => {
      try {
        this.#refresh();
      } catch (err) {
        log.error({ err }, 'TLS edges reload failed; keeping the previous ones');
      }
    });
  }

  /** The ports are tried in order. An exact host takes precedence, then the most specific wildcard. */
  find(name: string, ports: readonly number[]): ServedEdge | undefined {
    if (this.#hosts.size === 0) return undefined;
    for (const host of coveringNames(name)) {
      const served = this.at(host, ports);
      if (served) return served;
    }
    return undefined;
  }

  /** The edge with exactly this name or wildcard. */
  at(host: string, ports: readonly number[]): ServedEdge | undefined {
    if (!this.#hosts.has(host)) return undefined;
    for (const port of ports) {
      const served = this.#served.get(`${host}:${port}`);
      if (served) return served;
    }
    return undefined;
  }

  hasName(name: string): boolean {
    return this.#hosts.size > 0 && coveringNames(name).some((host) => this.#hosts.has(host));
  }

  served(): Iterable<ServedEdge> {
    return this.#served.values();
  }

  #refresh(): void {
    const touched = this.#store.tlsEdges.takeTouched();
    if (touched.size === 0) return;
    const rows = [...touched].map((id): [string, TlsEdgeRow | null] => [id, this.#store.tlsEdges.get(id)]);
    // A hostport may have moved from one edge to another.
    for (const [id] of rows) this.#remove(id);
    for (const [, row] of rows) if (row) this.#add(row);
    this.emit('changed');
  }

  #add(row: TlsEdgeRow): void {
    this.#rows.set(row.id, row);
    for (const hostport of row.hostports ?? []) {
      const served = { row, ...splitHostport(hostport) };
      this.#served.set(hostport, served);
      this.#hosts.set(served.host, (this.#hosts.get(served.host) ?? 0) + 1);
    }
  }

  #remove(id: string): void {
    for (const hostport of this.#rows.get(id)?.hostports ?? []) {
      const { host } = splitHostport(hostport);
      const left = (this.#hosts.get(host) ?? 0) - 1;
      if (left > 0) this.#hosts.set(host, left);
      else this.#hosts.delete(host);
      this.#served.delete(hostport);
    }
    this.#rows.delete(id);
  }
}

function splitHostport(hostport: string): { host: string; port: number } {
  const colon = hostport.lastIndexOf(':');
  return { host: hostport.slice(0, colon), port: Number(hostport.slice(colon + 1)) };
}

const HTTP = ['http/1.1'];

/** Takes connections through the modules of a TLS edge, in order, to its backend. */
export class TlsEdges implements TlsEdgeRouter {
  readonly #fixedResponses = new FixedResponses();
  readonly #prepared = new WeakMap<TlsEdgeRow, Promise<PreparedEdge>>();
  readonly #responseBackend: (id: string) => HttpResponseBackendRow | null;
  readonly #groupBackend: (id: string) => TunnelGroupBackendRow | null;
  #ports: EdgePorts | null = null;

  constructor(
    private readonly context: Pick<GatewayContext, 'store' | 'log'>,
    private readonly own: TlsRouteParts & {
      index: TlsEdgeIndex;
      policies: EndpointPolicies;
      isRefused: RefusesClient;
      /** Finds a labelled tunnel that has all of the labels; matching tunnels take turns. */
      withLabels(labels: Labels): LabeledUpstream | undefined;
    },
  ) {
    const { database, httpResponseBackends, tunnelGroupBackends } = context.store;
    this.#responseBackend = database.untilCommit((id) => httpResponseBackends.get(id));
    this.#groupBackend = database.untilCommit((id) => tunnelGroupBackends.get(id));
  }

  hasName(name: string): boolean {
    return this.own.index.hasName(name);
  }

  routeAt(ports: () => readonly number[], isHidden = (_host: string, _name: string): boolean => false): TlsEdgeRoute {
    return {
      serve: async (client) => {
        const { hostName } = client;
        const served = hostName === '' ? undefined : this.own.index.find(hostName, ports());
        if (!served || isHidden(served.host, hostName)) return false;
        await this.#serve(client, served);
        return true;
      },
    };
  }

  openPorts(host: string, shared: readonly number[], accept: (socket: Socket, route: TlsEdgeRoute) => void): void {
    const { index } = this.own;
    const { log } = this.context;
    this.#ports = new EdgePorts({ index, routeAt: (port) => this.routeAt(() => [port]), accept, host, log });
    this.#ports.start(shared);
  }

  closePorts(): void {
    this.#ports?.stop();
  }

  async #serve(client: HelloClient, served: ServedEdge): Promise<void> {
    const { socket, hostName, handshakeDone } = client;
    const { isRefused, streams } = this.own;
    const endpoint = endpointOf(served);
    if (isRefused(socket)) return streams.deny(socket, endpoint);
    const edge = await this.#prepare(served.row);
    const startedAt = Date.now();
    const unsecured = new ClientConnection(socket, startedAt, new HelloTls(hostName));
    if (!isAllowed(edge.restriction, { connection: unsecured, endpoint })) {
      streams.deny(socket, endpoint);
      return;
    }
    if (edge.demands === null) {
      handshakeDone();
      this.#route(socket, unsecured, edge, endpoint);
      return;
    }
    const isAnswered = edge.backendId !== null && this.#responseBackend(edge.backendId) !== null;
    const options = { demands: edge.demands, owner: served.row.id, ...(isAnswered && { protocols: HTTP }) };
    const secured = await this.own.handshakes.secure(client, options);
    if (secured === null) return;
    const tls = clientTls(secured, edge.demands.clientAuthorities);
    this.#route(secured, new ClientConnection(secured, startedAt, tls), edge, endpoint);
  }

  /** Runs the traffic policy and connects the client to the backend or to an internal endpoint. */
  #route(client: Socket, connection: ClientConnection, edge: PreparedEdge, endpoint: PolicyEndpoint): void {
    const { internal, streams } = this.own;
    const result = runConnectPhase(edge.policy, { connection, endpoint }, internal(client));
    if (result.kind === 'upstream') {
      this.#connect(client, connection, edge);
      return;
    }
    const to =
      result.kind === 'internal' ? findDestination(result.target, connection.forNextPolicy(), internal(client)) : null;
    const info = { protocol: 'tls', passthrough: edge.demands === null } as const;
    // The handshake is over, so an internal endpoint can demand nothing new of the client.
    const isMet = !to?.termination || meetsClientDemands(to.termination, edge.demands);
    if (to && isMet) streams.connectTo(client, to.endpoint, to.connection, { ...info, through: to.through });
    else streams.deny(client, endpoint);
  }

  /** Prepares each state of an edge once; a failure affects all waiting connections, and the next one tries again. */
  #prepare(row: TlsEdgeRow): Promise<PreparedEdge> {
    const cached = this.#prepared.get(row);
    if (cached) return cached;
    const prepared = prepareEdge(row, this.context.store, this.own.policies);
    this.#prepared.set(row, prepared);
    prepared.catch(() => this.#prepared.delete(row));
    return prepared;
  }

  #connect(client: Socket, connection: PolicyConnection, { backendId, demands }: PreparedEdge): void {
    const { log } = this.context;
    const { withLabels, streams } = this.own;
    const response = backendId === null ? null : this.#responseBackend(backendId);
    if (response) {
      this.#fixedResponses.serve(client, response);
      return;
    }
    const group = backendId === null ? null : this.#groupBackend(backendId);
    const tunnel = group === null ? undefined : withLabels(group.labels);
    if (tunnel) {
      streams.connectTo(client, tunnel, connection, { protocol: 'tls', passthrough: demands === null });
      return;
    }
    log.debug({ backend: backendId }, 'TLS edge connection rejected: no backend online');
    resetConnection(client);
  }
}

const MAX_PORTS = 100;
/** A port that another program uses may become free. */
const RETRY_MS = 30_000;

/** The further ports that hostports of TLS edges name. Each is open as long as an edge is served there. */
class EdgePorts {
  readonly #servers = new Map<number, Server>();
  readonly #connections = new Set<Socket>();
  readonly #onChanged = () => this.#update();
  #publicPorts: ReadonlySet<number> = new Set();
  #retry: NodeJS.Timeout | undefined;

  constructor(
    private readonly options: {
      index: TlsEdgeIndex;
      routeAt(port: number): TlsEdgeRoute;
      accept(socket: Socket, route: TlsEdgeRoute): void;
      host: string;
      log: Log;
    },
  ) {}

  /** @param publicPorts numbers of the shared port */
  start(publicPorts: readonly number[]): void {
    this.#publicPorts = new Set(publicPorts);
    this.options.index.on('changed', this.#onChanged);
    this.#update();
  }

  stop(): void {
    this.options.index.off('changed', this.#onChanged);
    clearTimeout(this.#retry);
    for (const port of [...this.#servers.keys()]) this.#close(port);
    for (const socket of this.#connections) socket.destroy();
  }

  #update(): void {
    const wanted = new Set<number>();
    for (const { port } of this.options.index.served()) if (!this.#publicPorts.has(port)) wanted.add(port);
    for (const port of [...this.#servers.keys()]) if (!wanted.has(port)) this.#close(port);
    for (const port of wanted) if (!this.#servers.has(port)) this.#open(port);
  }

  #open(port: number): void {
    const { accept, routeAt, host, log } = this.options;
    if (this.#servers.size >= MAX_PORTS) {
      log.error({ port, max_ports: MAX_PORTS }, 'TLS edge port not opened: too many ports');
      return;
    }
    const route = routeAt(port);
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      noteArrival();
      this.#connections.add(socket);
      socket.once('close', () => this.#connections.delete(socket));
      accept(socket, route);
    });
    server.on('error', (error) => {
      log.error({ port, reason: messageOf(error), retry_s: RETRY_MS / 1000 }, 'TLS edge port unavailable; retrying');
      if (this.#servers.get(port) === server) this.#close(port);
      this.#scheduleRetry();
    });
    this.#servers.set(port, server);
    server.listen(port, host);
  }

  /** Stops listening; open connections stay open. */
  #close(port: number): void {
    this.#servers.get(port)?.close();
    this.#servers.delete(port);
  }

  #scheduleRetry(): void {
    clearTimeout(this.#retry);
    this.#retry = setTimeout(this.#onChanged, RETRY_MS).unref();
  }
}
