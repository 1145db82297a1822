import type { Socket } from 'node:net';
import {
  beginsWithHttp1,
  type ConnectionTraffic,
  type EndpointOptions,
  type EndpointUpstream,
  type TunnelProtocol,
} from '../connectors/connector.ts';
import { openPrivateFolder } from '../folders/runtime-folder.ts';
import { type ConnectionOptions, connectUpstream } from './connect-upstream.ts';
import { TrafficCounters } from './traffic-counters.ts';
import { displayUpstream, isNamed, type TcpUpstream, type Upstream } from './upstream.ts';
import { type UpstreamHealth, UpstreamHealths } from './upstream-health.ts';
import { HalfClosedConnections, type RelayOptions, UpstreamRelay } from './upstream-relay.ts';

export type DialerOptions = ConnectionOptions & RelayOptions;

/**
 * Connections to all upstreams, and attempts to connect. A session carries 500; a gateway that opens streams and resets them
 * leaves an attempt behind for each.
 */
export const MAX_CONNECTIONS = 2048;

interface Connections {
  count: number;
}

interface Spoken extends Pick<EndpointOptions, 'app_protocol' | 'proxy_proto'> {
  protocol: TunnelProtocol;
}

interface TunnelUpstream {
  upstream: Upstream;
  protocol: TunnelProtocol;
  /** Whether its connections begin with HTTP/1.1. */
  isHttp: boolean;
  http2: boolean;
  traffic: TrafficCounters;
  healths: UpstreamHealths;
  connections: Connections;
  halfClosed: HalfClosedConnections;
}

export class UpstreamDialer {
  readonly healths: UpstreamHealths;
  readonly #connections: Connections = { count: 0 };
  readonly #halfClosed = new HalfClosedConnections();

  constructor(private readonly options: DialerOptions) {
    this.healths = new UpstreamHealths(options.log);
  }

  /** @throws {AgentError} 400 when the upstream is an address that is not allowed */
  prepare(upstream: Upstream, spoken: Spoken, traffic = new TrafficCounters()): PreparedUpstream {
    if (upstream.kind === 'tcp' && !isNamed(upstream)) this.options.guard.checkLiteral(upstream);
    const { protocol } = spoken;
    const isHttp = beginsWithHttp1(spoken);
    const http2 = spoken.app_protocol === 'http2';
    const shared = { healths: this.healths, connections: this.#connections, halfClosed: this.#halfClosed };
    return new PreparedUpstream({ upstream, protocol, isHttp, http2, traffic, ...shared }, this.options);
  }
}

/**
 * The upstream of one tunnel. The SDK forwards to IP addresses and `localhost` directly, at full speed. Names and unix
 * sockets go through a relay that checks every connection, as do https upstreams that are not verified, those that keep
 * connections open after clients have left, and all upstreams whose traffic is captured when they are bound.
 */
export class PreparedUpstream implements EndpointUpstream {
  #relay: UpstreamRelay | null = null;
  #released: Promise<void> | null = null;
  readonly #health: UpstreamHealth;

  constructor(
    private readonly tunnel: TunnelUpstream,
    private readonly options: DialerOptions,
  ) {
    this.#health = tunnel.healths.hold(tunnel);
  }

  async connect(): Promise<Socket> {
    const { connections } = this.tunnel;
    if (connections.count >= MAX_CONNECTIONS) throw new Error('too many connections to upstreams; retry later');
    connections.count += 1;
    const free = () => {
      connections.count -= 1;
    };
    try {
      const { upstream, http2 } = this.tunnel;
      const socket = await connectUpstream(upstream, { ...this.options, http2 });
      if (socket.closed) free();
      else socket.once('close', free);
      this.#health.answered();
      return socket;
    } catch (error) {
      free();
      this.options.log.debug(
        { err: error, upstream: displayUpstream(this.tunnel.upstream) },
        'upstream connection failed',
      );
      this.#health.failed(error, true);
      throw error;
    }
  }

  observeConnection(): ConnectionTraffic {
    return this.tunnel.traffic.connection(this.tunnel.isHttp);
  }

  async address(): Promise<string> {
    const { options } = this;
    const { upstream, protocol, traffic } = this.tunnel;
    // The SDK (1.7.0) aborts the handshake with a self-signed certificate even with verification off.
    const isDirect =
      upstream.kind === 'tcp' &&
      !isNamed(upstream) &&
      (upstream.scheme !== 'https' || options.verifyTls) &&
      !traffic.isCaptured &&
      !this.#health.needsRelay;
    traffic.isBypassed = isDirect;
    if (isDirect) this.#health.isDirect = true;
    if (isDirect) return directAddress(upstream, protocol);
    if (this.#relay === null) {
      // Clean-up of old temporary files may have removed the empty folder.
      await openPrivateFolder(options.socketFolder);
      const relay = new UpstreamRelay(this, (server, why) => this.#waits(server, why), options);
      await relay.listen();
      this.#relay = relay;
    }
    return `unix:${this.#relay.path}`;
  }

  #waits(server: Socket, why: 'half closed' | 'blocked'): void {
    const { halfClosed } = this.tunnel;
    const onGivenUp = () => this.#health.gaveUp();
    if (why === 'blocked') halfClosed.addBlocked(server, onGivenUp);
    else halfClosed.add(server, onGivenUp);
  }

  /** Closes the relay, if there is one; once, however often it is called. */
  release(): Promise<void> {
    this.#released ??= this.#release();
    return this.#released;
  }

  async #release(): Promise<void> {
    this.tunnel.healths.release(this.tunnel);
    await this.#relay?.close();
  }
}

function directAddress(upstream: TcpUpstream, protocol: TunnelProtocol): string {
  const scheme = upstream.scheme ?? (protocol === 'http' ? 'http' : 'tcp');
  return `${scheme}://${displayUpstream({ ...upstream, scheme: null })}`;
}
