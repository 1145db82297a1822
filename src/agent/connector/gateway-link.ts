import { randomUUID } from 'node:crypto';
import { SessionBuilder } from '@ngrok/ngrok';
import type { Clock } from '../../lib/clock.ts';
import type { Log } from '../../lib/log.ts';
import { CLOUD_ADDRESS, parseGatewayAddress } from './gateway-address.ts';
import type { GatewaySession } from './gateway-session.ts';
import { HEARTBEAT_INTERVAL_S, HEARTBEAT_TOLERANCE_S } from './heartbeat-watchdog.ts';
import { connectNgrokSession } from './ngrok-session.ts';
import { probeGateway } from './probe.ts';
import { Pulse } from './pulse.ts';
import type { Probe } from './reachability.ts';
import { sharedLookup } from './shared-lookup.ts';

export interface GatewayLinkOptions {
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

/** The way to a gateway, for any number of sessions. */
export interface GatewayLink {
  /** `host:port`, for the status. */
  readonly gateway: string;
  /** Whether anybody answers there. */
  readonly probe: Probe;
  /** Starts one session; as {@link connectNgrokSession} does. */
  connect(): Promise<GatewaySession>;
  /** Beaten by sessions that are up. */
  readonly pulse: Pulse;
}

/** @throws Error when the SDK cannot read the server address */
export function openGatewayLink(options: GatewayLinkOptions): GatewayLink {
  const { authtoken, verifyUpstreamTls, clock, log } = options;
  const gateway = options.serverAddr ?? CLOUD_ADDRESS;
  const address = parseGatewayAddress(gateway);
  const lookup = sharedLookup();
  const builder = sessionBuilder(options, gateway);
  const pulse = new Pulse(clock);
  return {
    gateway: `${address.host}:${address.port}`,
    probe: (signal) => probeGateway(address, lookup, signal),
    connect: () => connectNgrokSession(builder, { authtoken: authtoken(), verifyUpstreamTls, clock, pulse, log }),
    pulse,
  };
}

/**
 * One builder for all sessions: the SDK never lets go of a builder whose `connect()` failed (1.7.0), and a device
 * whose authtoken was revoked fails thousands of times.
 */
function sessionBuilder(options: GatewayLinkOptions, gateway: string): SessionBuilder {
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
