import type { Duplex } from 'node:stream';
import type { ByteChannel } from '../../agent-protocol/byte-channel.ts';
import { ApiError } from '../../lib/errors.ts';
import { type CompiledPolicy, NO_POLICY } from '../../traffic-policy/engine.ts';
import type { TlsTermination } from '../../traffic-policy/policy-subjects.ts';
import { type AddressSettings, urlOf } from '../endpoints/endpoint-address.ts';
import type { EndpointOwner } from '../endpoints/endpoint-owner.ts';
import { type LiveEndpoint, WITHOUT_AGENT } from '../endpoints/live-view.ts';
import { EDGE_TERMINATION, type EndpointProtocol, type OnlineEndpoint } from '../endpoints/online-endpoint.ts';
import { type ReportQueue, type ReportReader, RequestFeed } from '../endpoints/request-feed.ts';
import { EndpointTraffic } from '../endpoints/traffic-counts.ts';
import type { CloudEndpointRow } from '../store/cloud-endpoints.ts';

const close = () => ({ kind: 'close' }) as const;

/** Without the policy nobody may pass: every connection is closed. */
export const NOT_READY: CompiledPolicy = {
  ...NO_POLICY,
  onTcpConnect: close,
  onHttpRequest: close,
  access: ['policy'],
};

/** No agent. All cloud endpoints have it, so that they share addresses with each other, and with no agent's endpoint. */
const NO_AGENT: EndpointOwner = {
  id: '',
  online: true,
  isAlive: async () => true,
  stopListener: () => {},
  end: () => {},
  credential: {
    id: '',
    ownerId: null,
    authorize: () => {},
    authorizeWanted: () => {},
    keep: async () => {},
    hasRules: () => false,
    portsOf: () => [],
  },
};

/** An endpoint that is a row of the database: its policy answers, rejects and forwards what clients send. */
export class CloudEndpoint implements OnlineEndpoint {
  readonly isCloud = true;
  readonly owner = NO_AGENT;
  readonly isResponsive = true;
  readonly proxyProtocol = 0;
  readonly http2Upstream = false;
  readonly websocketTcp = false;
  readonly forwardsTo = '';
  readonly traffic = new EndpointTraffic();
  policy = NOT_READY;
  feed: RequestFeed | null = null;

  /**
   * @param row replaced when it changes, but for its address
   * @param ports the gateway's as they are now
   */
  constructor(
    public row: CloudEndpointRow,
    private readonly ports: AddressSettings['ports'],
  ) {}

  get id(): string {
    return this.row.id;
  }

  get publicId(): string {
    return this.row.id;
  }

  get url(): string {
    return urlOf(this);
  }

  get protocol(): EndpointProtocol {
    return this.row.proto as EndpointProtocol;
  }

  get host(): string {
    return this.row.host;
  }

  get port(): number {
    return this.internal || this.protocol === 'tcp'
      ? this.row.port
      : this.ports[this.protocol === 'http' ? 'http' : 'https'];
  }

  get internal(): boolean {
    return this.row.internal;
  }

  get pooled(): boolean {
    return this.row.pooling_enabled;
  }

  get tls(): TlsTermination | null {
    return this.protocol === 'https' || this.policy.terminatesTls ? EDGE_TERMINATION : null;
  }

  /** What the policy lets through has nowhere to go. */
  openChannel(): ByteChannel {
    throw new ApiError(
      502,
      'ERR_NGROK_6029',
      'The traffic policy of this cloud endpoint has neither answered the request nor forwarded it.',
    );
  }

  openStream(): Duplex {
    throw new Error('the traffic policy of a cloud endpoint has not forwarded the connection');
  }

  watchRequests(reader: ReportReader): ReportQueue {
    this.feed ??= new RequestFeed(() => {
      this.feed = null;
    });
    return this.feed.watch(reader);
  }

  view(): LiveEndpoint {
    const { row } = this;
    return {
      id: row.id,
      type: 'cloud',
      proto: row.proto,
      host: row.host,
      port: this.port,
      url: this.url,
      createdAt: row.created_at,
      updatedAt: row.updated_at,
      metadata: row.metadata ?? '',
      description: row.description ?? '',
      ...WITHOUT_AGENT,
      poolingEnabled: row.pooling_enabled,
      internal: row.internal,
      trafficPolicy: row.traffic_policy,
      access: this.policy.access,
      ...(this.policy.admission && { admission: this.policy.admission }),
      traffic: this.traffic,
    };
  }
}
