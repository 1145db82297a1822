import { isIPv6 } from 'node:net';
import { SessionBuilder } from '@ngrok/ngrok';
import { hostPort } from '../../../lib/network/ip-address.ts';
import { isBelowLocalhost } from '../../../lib/network/loopback-names.ts';
import type { TrustedCas } from '../../../lib/network/tls-options.ts';
import {
  CLIENT_TYPE,
  type GatewayLink,
  type GatewayLinkOptions,
  type GatewaySession,
  SessionRefused,
  sessionMetadata,
} from '../gateway-link.ts';
import { routeTo } from '../gateway-route.ts';
import { parseGatewayAddress } from '../gateway-socket.ts';
import { ProgressMonitor } from '../progress-monitor.ts';
import { GatewayRelay } from './gateway-relay.ts';
import { ListenerCleanup } from './listener-cleanup.ts';
import { connectNgrokSession } from './ngrok-session.ts';

/** Seconds between heartbeats, and the tolerance that the gateway is asked for on top. */
const HEARTBEAT_INTERVAL_S = 8;
const HEARTBEAT_TOLERANCE_S = 10;

/** @throws Error when the SDK cannot parse the server address */
export function openSdkLink(options: GatewayLinkOptions): GatewayLink {
  const { authtoken, verifyUpstreamTls, clock, log, authorities } = options;
  const route = routeTo(options.serverAddr, options.proxies, options.authorities);
  const { address, proxy, dial, ca } = route;
  const builder = sessionBuilder(options.version);
  const progress = new ProgressMonitor(clock);
  const listenerCleanup = new ListenerCleanup({ clock, log });
  const common = { verifyUpstreamTls, listenerCleanup, clock, progress, log };
  const start = (port: number) => connectNgrokSession(builder, { authtoken: authtoken(), port, ...common });
  if (proxy || isIPv6(address.host) || isBelowLocalhost(address.host)) {
    const relay = new GatewayRelay({ address, dial, ca, log });
    return {
      ...route,
      progress,
      connect: () => throughRelay(relay, builder, start),
      close: () => {
        listenerCleanup.close();
        relay.close();
      },
    };
  }
  trust(builder.serverAddr(hostPort(address.host, address.port)), authorities);
  return { ...route, progress, connect: () => start(address.port), close: () => listenerCleanup.close() };
}

function trust(builder: SessionBuilder, authorities: TrustedCas | null): void {
  if (!authorities) return;
  if ('host' in authorities) builder.rootCas('host');
  else builder.caCert(Buffer.from(authorities.pem));
}

async function throughRelay(
  relay: GatewayRelay,
  builder: SessionBuilder,
  start: (port: number) => Promise<GatewaySession>,
): Promise<GatewaySession> {
  const { address, cert } = await relay.open();
  builder.serverAddr(address).caCert(Buffer.from(cert));
  try {
    return await start(parseGatewayAddress(address).port);
  } catch (error) {
    // The SDK only knows that the relay closed the connection.
    if (!(error instanceof SessionRefused) || error.code !== null || relay.failure === null) throw error;
    throw new SessionRefused(null, relay.failure, { cause: error });
  }
}

/**
 * One builder for all sessions: the SDK leaks a builder whose `connect()` failed (1.7.0), and a device with a revoked
 * authtoken fails thousands of times.
 */
function sessionBuilder(version: string): SessionBuilder {
  return new SessionBuilder()
    .clientInfo(CLIENT_TYPE, version)
    .metadata(sessionMetadata())
    .heartbeatInterval(HEARTBEAT_INTERVAL_S)
    .heartbeatTolerance(HEARTBEAT_TOLERANCE_S);
}
