import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import { parseBandwidth } from '../../lib/bandwidth.ts';
import { openPrivateFolder } from '../../lib/files/runtime-folder.ts';
import { displayUpstream, isNamed, type TcpUpstream, type Upstream } from '../../lib/network/upstream-address.ts';
import { withDeadline } from '../../lib/time/deadline.ts';
import {
  beginsWithHttp1,
  type ConnectionTraffic,
  type EndpointOptions,
  type EndpointUpstream,
  type TunnelProtocol,
  type UpstreamTls,
} from '../connectors/connector.ts';
import { CappedConnection, type TunnelCap, tunnelCap } from './capped-connection.ts';
import { type ConnectionOptions, connectUpstream } from './connect-upstream.ts';
import { TrafficCounters } from './traffic-counters.ts';
import { type UpstreamHealth, UpstreamHealths } from './upstream-health.ts';
import { HalfClosedConnections, type RelayOptions, UpstreamRelay } from './upstream-relay.ts';
import { tlsOf } from './upstream-tls.ts';

export type DialerOptions = ConnectionOptions & RelayOptions;

/**
 * Connections to all upstreams, and attempts to connect. A session carries 500; a gateway that opens streams and resets them
 * leaves an attempt behind for each.
 */
export const MAX_CONNECTIONS = 2048;

interface Connections {
  count: number;
}

interface Spoken extends EndpointOptions {
  protocol: TunnelProtocol;
}

interface TunnelUpstream {
  upstream: Upstream;
  protocol: TunnelProtocol;
  /** Whether its connections begin with HTTP/1.1. */
  isHttp: boolean;
  http2: boolean;
  tls: UpstreamTls;
  traffic: TrafficCounters;
  healths: UpstreamHealths;
  connections: Connections;
  halfClosed: HalfClosedConnections;
  /** Null: any number of bytes may pass. */
  cap: TunnelCap | null;
}

export class UpstreamDialer {
  readonly healths: UpstreamHealths;
  readonly #connections: Connections = { count: 0 };
  readonly #halfClosed = new HalfClosedConnections();

  constructor(private readonly options: DialerOptions) {
    this.healths = new UpstreamHealths(options.log);
  }

  /** A gateway in this process has refused a response of the upstream with that address to a client. */
  answerRefused(forwardsTo: string, reason: string): void {
    for (const health of this.healths.values())
      if (displayUpstream(health.upstream) === forwardsTo) health.answerRefused(reason);
  }

  /** @throws {AgentError} 400 when the upstream is an address that is not allowed */
  prepare(upstream: Upstream, spoken: Spoken, traffic = new TrafficCounters()): PreparedUpstream {
    if (upstream.kind === 'tcp' && !isNamed(upstream)) this.options.guard.checkLiteral(upstream);
    const { protocol } = spoken;
    const isHttp = beginsWithHttp1(spoken);
    const http2 = spoken.app_protocol === 'http2';
    const tls = tlsOf(upstream, spoken);
    const shared = { healths: this.healths, connections: this.#connections, halfClosed: this.#halfClosed };
    const cap = spoken.bandwidth === undefined ? null : tunnelCap(parseBandwidth(spoken.bandwidth));
    return new PreparedUpstream({ upstream, protocol, isHttp, http2, tls, traffic, cap, ...shared }, this.options);
  }
}

/** For a connection on loopback to an upstream that may not be there. */
const LOOPBACK_MS = 500;

/**
 * The upstream of one tunnel. The SDK forwards to IP addresses and `localhost` directly, at full speed. Names and unix
 * sockets go through a relay that checks every connection, as do https upstreams, those that keep
 * connections open after clients have left, those of tunnels with a cap, and all upstreams whose traffic is captured when they
 * are bound.
 *
 * The SDK resolves `localhost` as the system does. Where that leaves out ::1 or 127.0.0.1, the SDK gets the address that
 * answers, and the relay is used for others, and once the upstream has moved.
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
      const { upstream, http2, tls, cap } = this.tunnel;
      const socket = await connectUpstream(upstream, { ...this.options, http2, tls });
      if (socket.closed) free();
      else socket.once('close', free);
      this.#countOpen(socket);
      this.#health.answered();
      return cap === null ? socket : new CappedConnection(socket, cap);
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

  #countOpen(socket: Socket): void {
    if (socket.closed) return;
    this.#health.open += 1;
    socket.once('close', () => {
      this.#health.open -= 1;
    });
  }

  observeConnection(): ConnectionTraffic {
    const traffic = this.tunnel.traffic.connection(this.tunnel.isHttp);
    const toClient = (bytes: Buffer) => {
      this.#health.heard(bytes);
      traffic.toClient(bytes);
    };
    return { ...traffic, toClient };
  }

  watchReach(listener: (isReachable: boolean) => void): () => void {
    return this.#health.watchReach(listener);
  }

  answerRefused(reason: string): void {
    this.#health.answerRefused(reason);
  }

  async address(): Promise<string> {
    const { options } = this;
    const { protocol, traffic } = this.tunnel;
    const direct = await this.#direct();
    traffic.isBypassed = direct !== null;
    if (direct !== null) {
      this.#health.isDirect = true;
      return directAddress(direct, protocol);
    }
    if (this.#relay === null) {
      // Clean-up of old temporary files may have removed the empty folder.
      await openPrivateFolder(options.socketFolder);
      const relay = new UpstreamRelay(this, protocol, (server, why) => this.#waits(server, why), options);
      await relay.listen();
      this.#relay = relay;
    }
    return `unix:${this.#relay.path}`;
  }

  /** Where the SDK connects to without the agent; null: nowhere. */
  async #direct(): Promise<TcpUpstream | null> {
    const { upstream, traffic, cap } = this.tunnel;
    if (upstream.kind !== 'tcp' || isNamed(upstream)) return null;
    if (traffic.isCaptured || cap !== null || this.#health.needsRelay) return null;
    // The SDK (1.7.0) knows neither the options of a tunnel's TLS nor RSA key exchange, and gives no reason when TLS fails.
    if (upstream.scheme === 'https') return null;
    if (upstream.host !== 'localhost') return upstream;
    const { addresses, isComplete } = await this.options.guard.localhost();
    if (isComplete) return upstream;
    const [first, ...others] = addresses.map(({ address }) => address);
    if (first === undefined) return null;
    const there = { ...upstream, host: first };
    if (others.length > 0 && !(await accepts(there))) return null;
    this.#health.directAddress = first;
    return there;
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

/** Whether something listens at an address of loopback. */
async function accepts({ host, port }: TcpUpstream): Promise<boolean> {
  const socket = net.connect({ host, port });
  try {
    await withDeadline(once(socket, 'connect'), 'connecting', LOOPBACK_MS);
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
