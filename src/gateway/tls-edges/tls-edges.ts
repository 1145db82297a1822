import type { Socket } from 'node:net';
import type { Log } from '../../lib/log/log.ts';
import type { PolicyConnection, PolicyEndpoint } from '../../traffic-policy/policy-subjects.ts';
import { ClientConnection, clientTls, HelloTls } from '../edge/connections/client-connection.ts';
import { findDestination, isAllowed, runConnectPhase } from '../edge/connections/connect-phase.ts';
import { resetConnection } from '../edge/http/error-response.ts';
import { type HelloClient, meetsClientDemands } from '../edge/tls/handshakes.ts';
import type { TlsEdgeRoute, TlsEdgeRouter, TlsRouteParts } from '../edge/tls-mux.ts';
import type { LabeledUpstream, Labels, RefusesClient } from '../endpoints/endpoint.ts';
import type { EndpointPolicies } from '../endpoints/endpoint-policies.ts';
import type { Store } from '../store/store.ts';
import type { HttpResponseBackendRow, TlsEdgeRow, TunnelGroupBackendRow } from '../store/tls-edges.ts';
import type { ServedEdge, TlsEdgeIndex } from './edge-index.ts';
import { EdgePorts } from './edge-ports.ts';
import { FixedResponses } from './fixed-responses.ts';
import { endpointOf, type PreparedEdge, prepareEdge } from './prepared-edge.ts';

interface TlsEdgesOptions extends TlsRouteParts {
  index: TlsEdgeIndex;
  store: Pick<Store, 'database' | 'certificateAuthorities' | 'httpResponseBackends' | 'tunnelGroupBackends'>;
  policies: EndpointPolicies;
  /** Whether an IP restriction refuses a client. */
  isRefused: RefusesClient;
  /** Finds a labelled tunnel that has all of the labels; matching tunnels take turns. */
  withLabels(labels: Labels): LabeledUpstream | undefined;
  log: Log;
}

const HTTP = ['http/1.1'];

/** Takes connections through the modules of a TLS edge, in order, to its backend. */
export class TlsEdges implements TlsEdgeRouter {
  readonly #fixedResponses = new FixedResponses();
  readonly #prepared = new WeakMap<TlsEdgeRow, Promise<PreparedEdge>>();
  readonly #responseBackend: (id: string) => HttpResponseBackendRow | null;
  readonly #groupBackend: (id: string) => TunnelGroupBackendRow | null;
  #ports: EdgePorts | null = null;

  constructor(private readonly options: TlsEdgesOptions) {
    const { database, httpResponseBackends, tunnelGroupBackends } = options.store;
    this.#responseBackend = database.untilCommit((id) => httpResponseBackends.get(id));
    this.#groupBackend = database.untilCommit((id) => tunnelGroupBackends.get(id));
  }

  hasName(name: string): boolean {
    return this.options.index.hasName(name);
  }

  routeAt(ports: () => readonly number[], isHidden = (_host: string, _name: string): boolean => false): TlsEdgeRoute {
    return {
      serve: async (client) => {
        const { hostName } = client;
        const served = hostName === '' ? undefined : this.options.index.find(hostName, ports());
        if (!served || isHidden(served.host, hostName)) return false;
        await this.#serve(client, served);
        return true;
      },
    };
  }

  openPorts(host: string, shared: readonly number[], accept: (socket: Socket, route: TlsEdgeRoute) => void): void {
    const { index, log } = this.options;
    this.#ports = new EdgePorts({ index, routeAt: (port) => this.routeAt(() => [port]), accept, host, log });
    this.#ports.start(shared);
  }

  closePorts(): void {
    this.#ports?.stop();
  }

  async #serve(client: HelloClient, served: ServedEdge): Promise<void> {
    const { socket, hostName, handshakeDone } = client;
    const { isRefused, streams } = this.options;
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
    const options = { demands: edge.demands, ...(isAnswered && { protocols: HTTP }) };
    const secured = await this.options.handshakes.secure(client, options);
    if (secured === null) return;
    const tls = clientTls(secured, edge.demands.clientAuthorities);
    this.#route(secured, new ClientConnection(secured, startedAt, tls), edge, endpoint);
  }

  /** Runs the traffic policy and connects the client to the backend or to an internal endpoint. */
  #route(client: Socket, connection: ClientConnection, edge: PreparedEdge, endpoint: PolicyEndpoint): void {
    const { internal, streams } = this.options;
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
    const prepared = prepareEdge(row, this.options);
    this.#prepared.set(row, prepared);
    prepared.catch(() => this.#prepared.delete(row));
    return prepared;
  }

  #connect(client: Socket, connection: PolicyConnection, { backendId, demands }: PreparedEdge): void {
    const { withLabels, streams, log } = this.options;
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
