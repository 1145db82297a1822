import { randomUUID } from 'node:crypto';
import { isIPv6 } from 'node:net';
import { SessionBuilder } from '@ngrok/ngrok';
import type { Log } from '../../../lib/log/log.ts';
import { type Dial, dialThrough, directDial } from '../../../lib/network/dial.ts';
import { hostPort } from '../../../lib/network/ip-address.ts';
import { type ProxyRules, type ProxyServer, proxyFor } from '../../../lib/network/proxy-rules.ts';
import type { TrustedCas } from '../../../lib/network/trusted-cas.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import { CLOUD_ADDRESS, type GatewayAddress, parseGatewayAddress } from '../gateway-address.ts';
import { type Probe, probeGateway } from '../gateway-probe.ts';
import { type GatewaySession, SessionRefused } from '../gateway-session.ts';
import { HEARTBEAT_INTERVAL_S, HEARTBEAT_TOLERANCE_S } from '../heartbeat-watchdog.ts';
import { ProgressMonitor } from '../progress-monitor.ts';

import { sharedLookup } from '../shared-lookup.ts';
import { CLOUD_CA } from './cloud-ca.ts';
import { GatewayRelay } from './gateway-relay.ts';
import { ListenerCleanup } from './listener-cleanup.ts';
import { connectNgrokSession } from './ngrok-session.ts';

export interface GatewayLinkOptions {
  /** Called before every session, so that a changed authtoken is used from the next one on. */
  authtoken: () => string;
  /** `host[:port]` of a gateway; null: ngrok's cloud. */
  serverAddr: string | null;
  /** Null: the SDK's own CA, which signs the certificates of ngrok's cloud. */
  authorities: TrustedCas | null;
  proxies: ProxyRules;
  /** Whether the SDK verifies the certificates of `https://` and `tls://` upstreams. */
  verifyUpstreamTls: boolean;
  /** The agent's version, which the gateway displays. */
  version: string;
  log: Log;
  clock: Clock;
}

/** Connects to one gateway, for any number of sessions. */
export interface GatewayLink {
  readonly address: GatewayAddress;
  /** Null: connections are direct. */
  readonly proxy: ProxyServer | null;
  readonly dial: Dial;
  readonly probe: Probe;
  /** Starts one session; as {@link connectNgrokSession} does. */
  connect(): Promise<GatewaySession>;
  readonly progress: ProgressMonitor;
  /** Call this when no session is left. */
  close(): void;
}

/** @throws Error when the SDK cannot parse the server address */
export function openGatewayLink(options: GatewayLinkOptions): GatewayLink {
  const { authtoken, verifyUpstreamTls, clock, log, authorities } = options;
  const address = parseGatewayAddress(options.serverAddr ?? CLOUD_ADDRESS);
  const proxy = proxyFor(options.proxies, 'https', address);
  const dial = proxy ? dialThrough(proxy) : directDial(sharedLookup());
  const builder = sessionBuilder(options.version);
  const progress = new ProgressMonitor(clock);
  const listenerCleanup = new ListenerCleanup({ clock, log });
  const common = { verifyUpstreamTls, listenerCleanup, clock, progress, log };
  const start = (port: number) => connectNgrokSession(builder, { authtoken: authtoken(), port, ...common });
  const probe: Probe = (signal) => probeGateway(address, dial, signal);
  if (proxy || isIPv6(address.host)) {
    const relay = new GatewayRelay({ address, dial, ca: pemOf(authorities), log });
    return {
      address,
      proxy,
      dial,
      probe,
      progress,
      connect: () => throughRelay(relay, builder, start),
      close: () => {
        listenerCleanup.close();
        relay.close();
      },
    };
  }
  trust(builder.serverAddr(hostPort(address.host, address.port)), authorities);
  const connect = () => start(address.port);
  return { address, proxy, dial, probe, progress, connect, close: () => listenerCleanup.close() };
}

/** PEM of the CAs that verify a gateway's certificate outside the SDK. */
export function pemOf(authorities: TrustedCas | null): string | Uint8Array {
  if (!authorities) return CLOUD_CA;
  return 'pem' in authorities ? authorities.pem : authorities.host;
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
  return (
    new SessionBuilder()
      .clientInfo('device-agent', version)
      // Our gateway at once hands over the endpoints of an earlier session of the same process.
      .metadata(JSON.stringify({ instance: randomUUID() }))
      .heartbeatInterval(HEARTBEAT_INTERVAL_S)
      .heartbeatTolerance(HEARTBEAT_TOLERANCE_S)
  );
}
