import type { Socket } from 'node:net';
import { messageOf } from '../../lib/errors.ts';
import type { EndpointUpstream, TunnelProtocol } from '../connectors/connector.ts';
import { AgentError } from '../errors/agent-error.ts';
import { openPrivateFolder } from '../folders/runtime-folder.ts';
import { displayUpstream, isNamed, type TcpUpstream, type Upstream } from './upstream.ts';
import { type ConnectionOptions, connectUpstream } from './upstream-connection.ts';
import { UpstreamOutage } from './upstream-outage.ts';
import { type RelayOptions, UpstreamRelay } from './upstream-relay.ts';

export type DialerOptions = ConnectionOptions & RelayOptions;

/** Prepares upstreams for connectors. */
export class UpstreamDialer {
  constructor(private readonly options: DialerOptions) {}

  /** @throws {AgentError} 400 when the upstream is an address that is not allowed */
  prepare(upstream: Upstream, protocol: TunnelProtocol): PreparedUpstream {
    if (upstream.kind === 'tcp' && !isNamed(upstream)) this.options.guard.checkLiteral(upstream);
    return new PreparedUpstream(upstream, protocol, this.options);
  }
}

/**
 * The upstream of one tunnel. The SDK forwards to IP addresses and `localhost` directly, at full speed. Names and unix
 * sockets go through a relay that checks every connection, as do https upstreams that are not verified.
 */
export class PreparedUpstream implements EndpointUpstream {
  #relay: UpstreamRelay | null = null;
  /** Warns once per tunnel: the operator does not always control what a name resolves to. */
  #warned = false;
  readonly #outage: UpstreamOutage;

  constructor(
    private readonly upstream: Upstream,
    private readonly protocol: TunnelProtocol,
    private readonly options: DialerOptions,
  ) {
    this.#outage = new UpstreamOutage(displayUpstream(upstream), options.log);
  }

  async connect(): Promise<Socket> {
    try {
      const socket = await connectUpstream(this.upstream, this.options);
      this.#outage.answered();
      return socket;
    } catch (error) {
      this.#logFailure(error);
      throw error;
    }
  }

  async address(): Promise<string> {
    const { upstream, options } = this;
    // The SDK (1.7.0) aborts the handshake with a self-signed certificate even with verification off.
    const isDirect =
      upstream.kind === 'tcp' && !isNamed(upstream) && (upstream.scheme !== 'https' || options.verifyTls);
    if (isDirect) return directAddress(upstream, this.protocol);
    if (this.#relay === null) {
      // Clean-up of old temporary files may have removed the empty folder.
      await openPrivateFolder(options.socketFolder);
      const relay = new UpstreamRelay(() => this.connect(), options);
      await relay.listen();
      this.#relay = relay;
    }
    return `unix:${this.#relay.path}`;
  }

  /** Closes the relay, if there is one. */
  async release(): Promise<void> {
    await this.#relay?.close();
  }

  #logFailure(error: unknown): void {
    const { log } = this.options;
    const upstream = displayUpstream(this.upstream);
    log.debug({ err: error, upstream }, 'upstream connection failed');
    const notAllowed = error instanceof AgentError && error.code === 'ERR_AGENT_UPSTREAM_NOT_ALLOWED';
    if (!notAllowed) this.#outage.failed(messageOf(error));
    if (!notAllowed || this.#warned) return;
    this.#warned = true;
    log.warn({ upstream, reason: error.message }, 'upstream not allowed; connection rejected');
  }
}

function directAddress(upstream: TcpUpstream, protocol: TunnelProtocol): string {
  const scheme = upstream.scheme ?? (protocol === 'http' ? 'http' : 'tcp');
  return `${scheme}://${displayUpstream({ ...upstream, scheme: null })}`;
}
