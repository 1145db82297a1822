import type { TunnelProtocol } from '../connectors/connector.ts';
import { openPrivateFolder } from '../folders/runtime-folder.ts';
import { displayUpstream, isNamed, type TcpUpstream, type Upstream } from './upstream.ts';
import { type RelayOptions, UpstreamRelay } from './upstream-relay.ts';

/** An upstream made ready for the SDK to forward to. */
export interface PreparedUpstream {
  /** What the SDK is given. */
  forwardTo: string;
  /** Ends connections that the agent itself carries. */
  release(): Promise<void>;
}

/**
 * Turns upstreams into addresses for the SDK. Addresses and `localhost` are forwarded to straight, at
 * full speed; names and unix sockets go through a relay that checks every connection.
 */
export class UpstreamDialer {
  constructor(private readonly options: RelayOptions) {}

  /**
   * @throws {AgentError} 400 when the upstream is given as an address and is not allowed
   */
  async prepare(upstream: Upstream, protocol: TunnelProtocol): Promise<PreparedUpstream> {
    if (upstream.kind === 'tcp' && !isNamed(upstream)) {
      this.options.guard.checkLiteral(upstream);
      return { forwardTo: straight(upstream, protocol), release: async () => {} };
    }
    // What clears away old temporary files takes an empty folder with it.
    await openPrivateFolder(this.options.socketFolder);
    const relay = new UpstreamRelay(upstream, this.options);
    await relay.listen();
    return { forwardTo: `unix:${relay.path}`, release: () => relay.close() };
  }
}

function straight(upstream: TcpUpstream, protocol: TunnelProtocol): string {
  const scheme = upstream.scheme ?? (protocol === 'http' ? 'http' : 'tcp');
  return `${scheme}://${displayUpstream({ ...upstream, scheme: null })}`;
}
