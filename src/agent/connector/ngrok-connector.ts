import { randomUUID } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { SessionBuilder } from '@ngrok/ngrok';
import type { Clock } from '../../lib/clock.ts';
import type { Log } from '../../lib/log.ts';
import type { Connector, Endpoint, EndpointRequest, SessionStatus } from './connector.ts';
import { CLOUD_ADDRESS, parseGatewayAddress } from './gateway-address.ts';
import { HEARTBEAT_INTERVAL_S, HEARTBEAT_TOLERANCE_S } from './heartbeat-watchdog.ts';
import { connectNgrokSession } from './ngrok-session.ts';
import { probeGateway } from './probe.ts';
import { offline } from './sdk-error.ts';
import { SessionSupervisor } from './session-supervisor.ts';
import { sharedLookup } from './shared-lookup.ts';

export interface NgrokConnectorOptions {
  /** Asked before every session, so that a token that was replaced is used from the next one on. */
  authtoken: () => string;
  /** `host[:port]` of a gateway; ngrok's cloud when left out. */
  serverAddr?: string;
  /** PEM of the CA that the gateway's certificate is verified with; the SDK's own for ngrok's cloud when left out. */
  caCert?: Uint8Array | string;
  /** Whether the SDK verifies the certificates of `https://` and `tls://` upstreams. */
  verifyUpstreamTls: boolean;
  /** The agent's, shown by the gateway. */
  version: string;
  log: Log;
  clock: Clock;
}

/** The connection to a gateway by way of the ngrok SDK. */
export class NgrokConnector extends EventEmitter<{ online: []; offline: [] }> implements Connector {
  readonly #supervisor: SessionSupervisor;

  /** @throws Error when the SDK cannot read the server address */
  constructor(options: NgrokConnectorOptions) {
    super();
    const { authtoken, verifyUpstreamTls, clock, log } = options;
    const gateway = options.serverAddr ?? CLOUD_ADDRESS;
    const address = parseGatewayAddress(gateway);
    const lookup = sharedLookup();
    const builder = sessionBuilder(options, gateway);
    this.#supervisor = new SessionSupervisor({
      gateway: `${address.host}:${address.port}`,
      probe: (signal) => probeGateway(address, lookup, signal),
      connect: () => connectNgrokSession(builder, { authtoken: authtoken(), verifyUpstreamTls, clock, log }),
      online: () => void this.emit('online'),
      offline: () => void this.emit('offline'),
      clock,
      log,
    });
  }

  get status(): SessionStatus {
    return this.#supervisor.status;
  }

  start(): void {
    this.#supervisor.start();
  }

  async open(request: EndpointRequest): Promise<Endpoint> {
    const { session, status } = this.#supervisor;
    if (!session) throw offline(status.lastError?.message ?? status.state);
    return session.open(request);
  }

  async stop(): Promise<void> {
    await this.#supervisor.stop();
  }
}

/**
 * One builder for all sessions: the SDK never lets go of a builder whose `connect()` failed (1.7.0), and a device
 * whose authtoken was revoked fails thousands of times.
 */
function sessionBuilder(options: NgrokConnectorOptions, gateway: string): SessionBuilder {
  const builder = new SessionBuilder()
    .clientInfo('device-agent', options.version)
    // Our own gateway hands the endpoints of an earlier session of the same process over at once.
    .metadata(JSON.stringify({ instance: randomUUID() }))
    .heartbeatInterval(HEARTBEAT_INTERVAL_S)
    .heartbeatTolerance(HEARTBEAT_TOLERANCE_S)
    .serverAddr(gateway);
  const { caCert } = options;
  if (caCert !== undefined) builder.caCert(typeof caCert === 'string' ? Buffer.from(caCert) : caCert);
  return builder;
}
