import type { Socket } from 'node:net';
import { hostPort } from '../../../lib/ip-address.ts';
import type { Log } from '../../../lib/log.ts';
import type { PolicyConnection } from '../../../traffic-policy/policy-subjects.ts';
import type { AgentUpstream, ClientInfo, GatewayEndpoint } from '../../endpoints/endpoint.ts';
import type { InternalLookup } from '../../endpoints/endpoint-directory.ts';
import type { TrafficCounters } from '../../traffic-counters.ts';
import { ClientConnection, clientTls } from '../connections/client-connection.ts';
import { destinationOf } from '../connections/connect-phase.ts';
import { OpenConnections } from '../connections/open-connections.ts';
import { pipeBoth } from '../connections/pipe-both.ts';
import { proxyHeader } from '../connections/proxy-protocol.ts';
import { resetConnection } from '../http/reset-connection.ts';
import { StreamQueue } from '../upstreams/stream-queue.ts';

export interface StreamProxyOptions {
  /** Finds the endpoints that policies can forward to; left out: there are none. */
  internal?: InternalLookup;
  /** Milliseconds without a byte in either direction after which a connection is cut. */
  idleTimeout?: number | undefined;
  /** Milliseconds that a client waits for a stream when the agent carries as many as it can. */
  streamWait?: number;
  counters: TrafficCounters;
  log: Log;
}

/** How a connection comes to its upstream. */
export interface StreamInfo extends Pick<ClientInfo, 'protocol' | 'passthrough'> {
  /** Endpoints whose policies have forwarded it, and with which it ends, too. */
  through?: readonly GatewayEndpoint[];
}

/** Connections such as those of SSH are quiet for long, and dead ones are found by TCP's own probes. */
const IDLE_TIMEOUT = 60 * 60_000;
const KEEP_ALIVE = 60_000;
const STREAM_WAIT = 5000;

/** Takes public connections as bare bytes to upstreams. They end with the agent's session and with its listener. */
export class StreamProxy {
  readonly #options: Required<StreamProxyOptions> & { idleTimeout: number };
  readonly #openConnections = new OpenConnections();
  readonly #lines = new WeakMap<AgentUpstream, StreamQueue>();

  constructor(options: StreamProxyOptions) {
    const { internal = () => undefined, idleTimeout = IDLE_TIMEOUT, streamWait = STREAM_WAIT, ...rest } = options;
    this.#options = { internal, idleTimeout, streamWait, ...rest };
  }

  /** Takes a connection through the policy's phase on_tcp_connect and, if that lets it, to the upstream. */
  serve(client: Socket, endpoint: GatewayEndpoint): void {
    const connection = new ClientConnection(client, Date.now(), clientTls(client));
    const to = destinationOf(endpoint, connection, this.#options.internal);
    if (to === null) resetConnection(client);
    else this.connectTo(client, to.endpoint, to.connection, { protocol: endpoint.protocol, through: to.through });
  }

  /**
   * Joins a connection with a new one to the upstream, until either ends.
   *
   * @param client plain, or TLS after its handshake; nothing of it has been read
   * @param connection the same, as policies see it
   */
  connectTo(
    client: Socket,
    upstream: AgentUpstream,
    connection: PolicyConnection,
    { protocol, passthrough = false, through = [] }: StreamInfo,
  ): void {
    this.#options.counters.connected(client, passthrough || protocol === 'tls' ? 'tls' : 'tcp');
    // What happens before there is an upstream; afterwards its stream is told as well.
    client.on('error', () => {});
    client.allowHalfOpen = true;
    client.setNoDelay(true);
    client.setKeepAlive(true, KEEP_ALIVE);
    client.setTimeout(this.#options.idleTimeout, () => resetConnection(client));
    this.#openConnections.enter(through, client, () => resetConnection(client));
    const address = hostPort(connection.clientIp, connection.clientPort);
    const leave = this.#lineOf(upstream).enter(
      () => (client.destroyed ? null : upstream.openStream({ address, protocol, passthrough })),
      (stream) => {
        if (stream === null) return;
        if (upstream.proxyProtocol !== 0) stream.write(proxyHeader(upstream.proxyProtocol, connection));
        pipeBoth(client, stream);
      },
      (error) => {
        this.#options.log.debug({ err: error }, 'a connection could not be taken to its upstream');
        resetConnection(client);
      },
    );
    client.once('close', leave);
  }

  /** Cuts what an endpoint's policy has forwarded; what it carries itself ends with its listener. */
  remove(endpoint: GatewayEndpoint): void {
    this.#openConnections.remove(endpoint);
  }

  #lineOf(upstream: AgentUpstream): StreamQueue {
    const line = this.#lines.get(upstream) ?? new StreamQueue(this.#options.streamWait);
    this.#lines.set(upstream, line);
    return line;
  }
}
