import { type Dial, dialThrough, directDial } from '../../lib/network/dial.ts';
import { type ProxyRules, type ProxyServer, proxyFor } from '../../lib/network/proxy-rules.ts';
import { CLOUD_ADDRESS, type GatewayAddress, parseGatewayAddress } from './gateway-address.ts';
import { type Probe, probeGateway } from './gateway-probe.ts';
import { sharedLookup } from './shared-lookup.ts';

/** How to connect to a gateway. */
export interface GatewayRoute {
  readonly address: GatewayAddress;
  /** Null: connections are direct. */
  readonly proxy: ProxyServer | null;
  readonly dial: Dial;
  readonly probe: Probe;
}

/** @param serverAddr `host[:port]`; null: ngrok's cloud */
export function routeTo(serverAddr: string | null, proxies: ProxyRules): GatewayRoute {
  const address = parseGatewayAddress(serverAddr ?? CLOUD_ADDRESS);
  const proxy = proxyFor(proxies, 'https', address);
  const dial = proxy ? dialThrough(proxy) : directDial(sharedLookup());
  return { address, proxy, dial, probe: (signal) => probeGateway(address, dial, signal) };
}
