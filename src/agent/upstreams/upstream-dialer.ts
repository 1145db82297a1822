import type { TunnelProtocol } from '../connectors/connector.ts';
import { openPrivateFolder } from '../folders/runtime-folder.ts';
import { displayUpstream, isNamed, type TcpUpstream, type Upstream } from './upstream.ts';
import { type RelayOptions, UpstreamRelay } from './upstream-relay.ts';

export interface PreparedUpstream {
  forwardTo: string;
  /** Closes the relay, if there is one. */
  release(): Promise<void>;
}

/**
 * Turns upstreams into addresses for the SDK. It forwards to IP addresses and `localhost` directly, at full speed. Names
 * and unix sockets go through a relay that checks every connection, as do https upstreams that are not verified.
 */
export class UpstreamDialer {
  constructor(private readonly options: RelayOptions) {}

  /** @throws {AgentError} 400 when the upstream is an address that is not allowed */
  async prepare(upstream: Upstream, protocol: TunnelProtocol): Promise<PreparedUpstream> {
    if (upstream.kind === 'tcp' && !isNamed(upstream)) {
      this.options.guard.checkLiteral(upstream);
      // The SDK (1.7.0) aborts the handshake with a self-signed certificate even with verification off.
      const needsRelay = upstream.scheme === 'https' && !this.options.verifyTls;
      if (!needsRelay) return { forwardTo: directAddress(upstream, protocol), release: async () => {} };
    }
    // Clean-up of old temporary files may have removed the empty folder.
    await openPrivateFolder(this.options.socketFolder);
    const relay = new UpstreamRelay(upstream, this.options);
    await relay.listen();
    return { forwardTo: `unix:${relay.path}`, release: () => relay.close() };
  }
}

function directAddress(upstream: TcpUpstream, protocol: TunnelProtocol): string {
  const scheme = upstream.scheme ?? (protocol === 'http' ? 'http' : 'tcp');
  return `${scheme}://${displayUpstream({ ...upstream, scheme: null })}`;
}
