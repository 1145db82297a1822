import { pemOf } from '../gateway-ca.ts';
import { type GatewayLink, type GatewayLinkOptions, sessionMetadata } from '../gateway-link.ts';
import { routeTo } from '../gateway-route.ts';
import { ProgressMonitor } from '../progress-monitor.ts';
import { type Continuity, connectNativeSession } from './native-session.ts';

/** A link to a gateway of our own, without the SDK. */
export function openNativeLink(options: GatewayLinkOptions): GatewayLink {
  const { authtoken, authorities, version, clock, log } = options;
  const route = routeTo(options.serverAddr, options.proxies, options.authorities);
  const progress = new ProgressMonitor(clock);
  const continuity: Continuity = { clientId: '', tlsSession: null };
  const { address, dial } = route;
  const fixed = { address, dial, ca: pemOf(authorities), version, metadata: sessionMetadata() };
  return {
    ...route,
    progress,
    connect: () => connectNativeSession({ ...fixed, authtoken: authtoken(), continuity, clock, progress, log }),
    close() {},
  };
}
