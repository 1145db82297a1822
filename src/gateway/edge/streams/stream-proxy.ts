import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { hostPort } from '../../../lib/network/ip-address.ts';
import { proxyHeader } from '../../../lib/network/proxy-protocol.ts';
import type { PolicyConnection } from '../../../traffic-policy/policy-subjects.ts';
import type { EdgeContext } from '../../context/gateway-context.ts';
import type { AgentUpstream, ClientInfo, GatewayEndpoint, InternalLookupFor } from '../../endpoints/online-endpoint.ts';
import { ClientConnection, findDestination } from '../connections/connect-phase.ts';
import { type DeniedEndpoint, noteDeniedConnection } from '../connections/denials.ts';
import { OpenConnections, pipeBoth } from '../connections/open-connections.ts';
import { resetConnection } from '../http/error-response.ts';
import { meetsClientDemands } from '../tls/handshakes.ts';
import { StreamQueue } from '../upstreams/stream-queue.ts';

interface StreamInfo extends Pick<ClientInfo, 'protocol' | 'passthrough'> {
  /** Endpoints whose policies have forwarded it; it ends when one of them goes offline. */
  through?: readonly GatewayEndpoint[];
}

/** Connections of SSH and the like are idle for long; TCP keep-alive detects dead ones. */
const IDLE_TIMEOUT = 60 * 60_000;
const KEEP_ALIVE = 60_000;
const STREAM_WAIT = 5000;

/** Connects clients to upstreams as raw bytes. The connections end with the agent's session or its listener. */
export class StreamProxy {
  readonly #openConnections = new OpenConnections();
  readonly #queues = new WeakMap<AgentUpstream, StreamQueue>();
  readonly #internal: InternalLookupFor;
  readonly #idleTimeout: number;
  readonly #streamWait: number;

  constructor(
    private readonly context: EdgeContext,
    {
      internal = () => () => undefined,
      idleTimeout = IDLE_TIMEOUT,
      streamWait = STREAM_WAIT,
    }: {
      internal?: InternalLookupFor;
      /** Milliseconds without a byte in either direction after which a connection is closed. */
      idleTimeout?: number | undefined;
      /** Milliseconds that a client waits for a stream when the agent carries as many as it can. */
      streamWait?: number;
    } = {},
  ) {
    this.#internal = internal;
    this.#idleTimeout = idleTimeout;
    this.#streamWait = streamWait;
  }

  /** @param client has no TLS of its own any longer, so that no policy can demand a certificate of it */
  serve(client: Socket, endpoint: GatewayEndpoint): void {
    const connection = new ClientConnection(client, Date.now(), null);
    const to = findDestination(endpoint, connection, this.#internal(client));
    if (to === null || (to.termination && !meetsClientDemands(to.termination, null))) this.deny(client, endpoint);
    else this.connectTo(client, to.endpoint, to.connection, { protocol: endpoint.protocol, through: to.through });
  }

  /** Refuses a connection to an endpoint: its policy or an IP restriction does not allow it. */
  deny(client: Socket, endpoint: DeniedEndpoint): void {
    noteDeniedConnection(this.context, endpoint, client);
    resetConnection(client);
  }

  /** @param client plain, or TLS after its handshake; nothing of it has been read */
  connectTo(
    client: Socket,
    upstream: AgentUpstream,
    connection: PolicyConnection,
    { protocol, passthrough = false, through = [] }: StreamInfo,
  ): void {
    this.context.counters.connected(client, passthrough || protocol === 'tls' ? 'tls' : 'tcp');
    upstream.traffic.countRequest();
    for (const { traffic } of through) traffic.countRequest();
    // Until the upstream's stream is open; pipeBoth handles errors from then on.
    client.on('error', () => {});
    client.allowHalfOpen = true;
    client.setNoDelay(true);
    client.setKeepAlive(true, KEEP_ALIVE);
    client.setTimeout(this.#idleTimeout, () => resetConnection(client));
    this.#openConnections.add(through, client, () => resetConnection(client));
    const address = hostPort(connection.clientIp, connection.clientPort);
    const { proxyProtocol } = upstream;
    const header = proxyProtocol === 0 ? {} : { proxyHeader: proxyHeader(proxyProtocol, connection) };
    const leave = this.#queueFor(upstream).enter(
      address,
      () => (client.destroyed ? null : upstream.openStream({ address, protocol, passthrough, ...header })),
      (stream) => {
        if (stream === null) return;
        restWhenRefused(upstream, stream, client);
        pipeBoth(client, stream, connection.bandwidth);
      },
      (error) => {
        upstream.traffic.countError();
        this.context.log.debug({ err: error }, 'connection rejected: cannot open a stream to the upstream');
        resetConnection(client);
      },
    );
    client.once('close', leave);
  }

  /** Ends what an endpoint's policy has forwarded; its own connections end with its listener. */
  remove(endpoint: GatewayEndpoint): void {
    this.#openConnections.remove(endpoint);
  }

  #queueFor(upstream: AgentUpstream): StreamQueue {
    const queue = this.#queues.get(upstream) ?? new StreamQueue(this.#streamWait);
    this.#queues.set(upstream, queue);
    return queue;
  }
}

/** Agents end a stream without a byte when they cannot connect to the upstream; an upstream can do that, too. */
function restWhenRefused(upstream: AgentUpstream, stream: Duplex, client: Socket): void {
  let hasAnswered = false;
  stream.once('data', () => {
    hasAnswered = true;
  });
  const onEnd = () => {
    if (hasAnswered || client.readableEnded || client.destroyed) return;
    upstream.rest?.();
    upstream.traffic.countError();
  };
  stream.once('end', onEnd).once('error', onEnd);
}
