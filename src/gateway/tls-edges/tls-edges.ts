import type { Socket } from 'node:net';
import type { Log } from '../../lib/log.ts';
import type { PolicyConnection } from '../../traffic-policy/policy-subjects.ts';
import { ClientConnection, clientTls, HelloTls } from '../edge/connections/client-connection.ts';
import { demandsSame, destinationOf, isLetThrough, runConnectPhase } from '../edge/connections/connect-phase.ts';
import { resetConnection } from '../edge/http/reset-connection.ts';
import type { StreamProxy } from '../edge/streams/stream-proxy.ts';
import type { Handshakes } from '../edge/tls/handshakes.ts';
import type { TlsRoute, Visitor } from '../edge/tls/tls-mux.ts';
import type { LabeledUpstream } from '../endpoints/endpoint.ts';
import type { InternalLookup } from '../endpoints/endpoint-directory.ts';
import type { EndpointPolicies } from '../endpoints/endpoint-policies.ts';
import type { Labels } from '../endpoints/labels.ts';
import type { HttpResponseBackendRow, TunnelGroupBackendRow } from '../store/backends.ts';
import type { Store } from '../store/store.ts';
import type { TlsEdgeRow } from '../store/tls-edges.ts';
import type { ServedEdge, TlsEdgeIndex } from './edge-index.ts';
import { FixedResponses } from './fixed-responses.ts';
import { endpointOf, type PreparedEdge, prepareEdge } from './prepared-edge.ts';
import { untilCommit } from './until-commit.ts';

export interface TlsEdgesOptions {
  index: TlsEdgeIndex;
  store: Pick<Store, 'database' | 'certificateAuthorities' | 'httpResponseBackends' | 'tunnelGroupBackends'>;
  policies: EndpointPolicies;
  /** A labelled tunnel that carries all of the labels; those that do take turns. */
  withLabels(labels: Labels): LabeledUpstream | undefined;
  /** Finds what the policy can forward to. */
  internal: InternalLookup;
  handshakes: Handshakes;
  streams: StreamProxy;
  log: Log;
}

const HTTP = ['http/1.1'];

/** Takes visitors to TLS edges and through their modules, in order, to what backs them. */
export class TlsEdges {
  readonly #options: TlsEdgesOptions;
  readonly #answers = new FixedResponses();
  readonly #prepared = new WeakMap<TlsEdgeRow, Promise<PreparedEdge>>();
  readonly #answerOf: (id: string) => HttpResponseBackendRow | null;
  readonly #groupOf: (id: string) => TunnelGroupBackendRow | null;

  constructor(options: TlsEdgesOptions) {
    const { database, httpResponseBackends, tunnelGroupBackends } = options.store;
    this.#options = options;
    this.#answerOf = untilCommit(database, (id) => httpResponseBackends.get(id));
    this.#groupOf = untilCommit(database, (id) => tunnelGroupBackends.get(id));
  }

  /**
   * The edges that are served at a public port.
   *
   * @param ports as hostports name it, the one that goes before first
   * @param isHidden whether a host, perhaps a wildcard, is hidden for visitors of a name
   */
  at(ports: () => readonly number[], isHidden: (host: string, name: string) => boolean = () => false): TlsRoute {
    return {
      serve: async (visitor) => {
        const { hello, name } = visitor;
        const served = hello && name !== '' ? this.#options.index.find(name, ports()) : undefined;
        if (!hello || !served || isHidden(served.host, name)) return false;
        await this.#serve(visitor, new HelloTls(hello), served);
        return true;
      },
    };
  }

  async #serve(visitor: Visitor, hello: HelloTls, served: ServedEdge): Promise<void> {
    const { socket, arrived } = visitor;
    const endpoint = endpointOf(served);
    const edge = await this.#prepare(served.row);
    const startedAt = Date.now();
    const before = new ClientConnection(socket, startedAt, hello);
    if (!isLetThrough(edge.restriction, { connection: before, endpoint })) {
      resetConnection(socket);
      return;
    }
    let client: Socket = socket;
    let connection = before;
    if (edge.demands === null) {
      arrived();
    } else {
      const isAnswered = edge.backendId !== null && this.#answerOf(edge.backendId) !== null;
      const options = { demands: edge.demands, ...(isAnswered && { protocols: HTTP }) };
      const secured = await this.#options.handshakes.secure(visitor, options);
      if (secured === null) return;
      client = secured;
      connection = new ClientConnection(secured, startedAt, clientTls(secured, edge.demands.clientAuthorities));
    }
    const { internal, streams } = this.#options;
    const result = runConnectPhase(edge.policy, { connection, endpoint }, internal);
    if (result === 'upstream') {
      this.#connect(client, connection, edge);
      return;
    }
    const to = result === 'cut' ? null : destinationOf(result.target, connection.anew(), internal);
    const info = { protocol: 'tls', passthrough: edge.demands === null } as const;
    // The handshake is over: what an internal endpoint demands of clients cannot be asked any more.
    const isAsked = !to?.termination || demandsSame(to.termination, edge.demands);
    if (to && isAsked) streams.connectTo(client, to.endpoint, to.connection, { ...info, through: to.through });
    else resetConnection(client);
  }

  /** Once for each state of an edge; a failure is told to every visitor, and tried again for the next one. */
  #prepare(row: TlsEdgeRow): Promise<PreparedEdge> {
    const known = this.#prepared.get(row);
    if (known) return known;
    const prepared = prepareEdge(row, this.#options);
    this.#prepared.set(row, prepared);
    prepared.catch(() => this.#prepared.delete(row));
    return prepared;
  }

  #connect(client: Socket, connection: PolicyConnection, { backendId, demands }: PreparedEdge): void {
    const { withLabels, streams, log } = this.#options;
    const answer = backendId === null ? null : this.#answerOf(backendId);
    if (answer) {
      this.#answers.serve(client, answer);
      return;
    }
    const group = backendId === null ? null : this.#groupOf(backendId);
    const tunnel = group === null ? undefined : withLabels(group.labels);
    if (tunnel) {
      streams.connectTo(client, tunnel, connection, { protocol: 'tls', passthrough: demands === null });
      return;
    }
    log.debug({ backend: backendId }, 'a TLS edge has no backend, or nothing of it is online');
    resetConnection(client);
  }
}
