import type { Duplex } from 'node:stream';
import type { ByteChannel } from '../../../agent-protocol/byte-channel.ts';
import { ChannelDuplex } from '../../../agent-protocol/channel-duplex.ts';
import { NO_POLICY } from '../../../traffic-policy/engine.ts';
import { type ClientInfo, EDGE_TERMINATION, EndpointTraffic, type GatewayEndpoint } from '../../endpoints/endpoint.ts';
import { LinkChannel } from './link-channel.ts';

/**
 * A name that another gateway serves, for requests that have been decrypted here. They go there over connections of their
 * client's own, as if the client had opened those: policies, limits and counters are that gateway's.
 */
export class RemoteEndpoint implements GatewayEndpoint {
  readonly isRemote = true;
  readonly id: string;
  readonly url: string;
  readonly port = 0;
  readonly policy = NO_POLICY;
  readonly tls = EDGE_TERMINATION;
  readonly websocketTcp = false;
  readonly feed = null;
  /** So that no two clients share a connection. */
  readonly proxyProtocol = 2;
  readonly http2Upstream = false;
  readonly forwardsTo = '';
  readonly traffic = new EndpointTraffic();

  /** @param open opens a connection for a client */
  constructor(
    readonly protocol: 'http' | 'https',
    readonly host: string,
    private readonly open: (client: ClientInfo) => Promise<Duplex>,
  ) {
    this.url = `${protocol}://${host}`;
    this.id = this.url;
  }

  openChannel(client: ClientInfo): ByteChannel {
    return new LinkChannel(this.open(client));
  }

  openStream(client: ClientInfo): Duplex {
    return new ChannelDuplex(this.openChannel(client));
  }
}
