import { isIPv6 } from 'node:net';
import { SessionBuilder } from '@ngrok/ngrok';
import { hostPort } from '../../../lib/network/ip-address.ts';
import { isBelowLocalhost } from '../../../lib/network/loopback-names.ts';
import type { TrustedCas } from '../../../lib/tls/tls-options.ts';
import {
  CLIENT_TYPE,
  type GatewayLink,
  type GatewayLinkOptions,
  type GatewaySession,
  SessionRefused,
  sessionMetadata,
} from '../gateway-link.ts';
import { type GatewayRoute, routeTo } from '../gateway-route.ts';
import { parseGatewayAddress } from '../gateway-socket.ts';
import { ProgressMonitor } from '../progress-monitor.ts';
import { watchDialFailures } from './dial-failures.ts';
import { GatewayRelay } from './gateway-relay.ts';
import { ListenerCleanup } from './listener-cleanup.ts';
import { connectNgrokSession } from './ngrok-session.ts';

/** Seconds between heartbeats. */
const HEARTBEAT_INTERVAL_S = 8;
/** Where another gateway can serve the device when one is lost. */
const SHORT_INTERVAL_S = 4;
/** On a metered link: the SDK sends all heartbeats at one interval. */
const METERED_INTERVAL_S = 55;
/** The gateway is asked to tolerate so many more seconds. */
const HEARTBEAT_TOLERANCE_S = 10;

/** @throws Error when the SDK cannot parse the server address */
export function openSdkLink(options: GatewayLinkOptions): GatewayLink {
  const { authtoken, clock, log, authorities, time, version } = options;
  const route = routeTo(options.serverAddr, options.proxies, options.authorities);
  const { address, proxy, dial } = route;
  const metadata = sessionMetadata();
  const progress = new ProgressMonitor(clock);
  const listenerCleanup = new ListenerCleanup({ clock, log });
  const common = { listenerCleanup, clock, progress, log, gatewayPort: (proxy ?? address).port };
  // The SDK (1.7.0) waits two minutes for an address that does not answer. Until then, no other attempt gets anywhere.
  const spreads = () => authorities !== null && route.hasSeveral();
  const start = (builder: SessionBuilder, port: number) => {
    const isMetered = options.pace?.kind === 'metered';
    const usual = spreads() ? SHORT_INTERVAL_S : HEARTBEAT_INTERVAL_S;
    const heartbeatIntervalS = isMetered ? METERED_INTERVAL_S : usual;
    return connectNgrokSession(builder, { authtoken: authtoken(), port, heartbeatIntervalS, ...common });
  };
  const relay = new GatewayRelay({
    ...{ address, dial, time, log },
    trust: () => ({ ca: route.ca, protocols: route.protocols }),
  });
  // The SDK knows no other time than the system's.
  let isOutOfTime = false;
  // The SDK asks for no chain.
  let hasOtherChain = false;
  const probe: GatewayRoute['probe'] = async (signal, onConnected) => {
    const plain = await route.plainProbe(signal, onConnected);
    const asksAgain = plain.isOfOtherCa === true && route.protocols.length > 0;
    const answer = asksAgain ? await route.probe(signal) : plain;
    hasOtherChain = asksAgain && answer.isOfOtherCa !== true;
    isOutOfTime = answer.isOutOfTime === true;
    return answer;
  };
  const builder = () => sessionBuilder(version, metadata, options.onCommand);
  const [direct, relayed] = [builder(), builder()];
  const needsRelay = proxy !== null || isIPv6(address.host) || isBelowLocalhost(address.host);
  const unwatch = options.onDialFailed && watchDialFailures(options.onDialFailed);
  const usesRelay = () => needsRelay || spreads() || hasOtherChain || (isOutOfTime && time != null);
  const startDirect = () => {
    trust(direct.serverAddr(hostPort(address.host, address.port)), authorities);
    return start(direct, address.port);
  };
  return {
    ...route,
    probe,
    progress,
    connect: () => (usesRelay() ? throughRelay(relay, relayed, start) : startDirect()),
    close: () => {
      unwatch?.();
      listenerCleanup.close();
      relay.close();
    },
  };
}

function trust(builder: SessionBuilder, authorities: TrustedCas | null): void {
  if (!authorities) return;
  if ('host' in authorities) builder.rootCas('host');
  else builder.caCert(Buffer.from(authorities.pem));
}

async function throughRelay(
  relay: GatewayRelay,
  builder: SessionBuilder,
  start: (builder: SessionBuilder, port: number) => Promise<GatewaySession>,
): Promise<GatewaySession> {
  const { address, cert } = await relay.open();
  builder.serverAddr(address).caCert(Buffer.from(cert));
  try {
    return await start(builder, parseGatewayAddress(address).port);
  } catch (error) {
    // The SDK only knows that the relay closed the connection.
    if (!(error instanceof SessionRefused) || error.code !== null || relay.failure === null) throw error;
    throw new SessionRefused(null, relay.failure, { cause: error });
  }
}

/**
 * One builder for all sessions of one way: the SDK leaks a builder whose `connect()` failed (1.7.0), and a device with a revoked
 * authtoken fails thousands of times.
 */
function sessionBuilder(version: string, metadata: string, onCommand: GatewayLinkOptions['onCommand']): SessionBuilder {
  const builder = new SessionBuilder()
    .clientInfo(CLIENT_TYPE, version)
    .metadata(metadata)
    .heartbeatTolerance(HEARTBEAT_TOLERANCE_S);
  if (!onCommand) return builder;
  // The SDK answers once the handler has returned.
  return builder
    .handleRestartCommand(() => void setImmediate(onCommand, 'restart'))
    .handleStopCommand(() => void setImmediate(onCommand, 'stop'));
}
