import { type Dial, dialThrough, directDial } from '../../lib/network/dial.ts';
import { type ProxyRules, type ProxyServer, proxyFor } from '../../lib/network/proxy-rules.ts';
import type { TrustedCas } from '../../lib/network/trusted-cas.ts';
import { CLOUD_ADDRESS, type GatewayAddress, parseGatewayAddress } from './gateway-address.ts';
import { pemOf } from './gateway-ca.ts';
import { type Probe, probeGateway } from './gateway-probe.ts';
import { sharedLookup } from './shared-lookup.ts';
import { PORTAL_ADVICE } from './tls-probe.ts';

/** How to connect to a gateway. */
export interface GatewayRoute {
  readonly address: GatewayAddress;
  /** Null: connections are direct. */
  readonly proxy: ProxyServer | null;
  readonly dial: Dial;
  readonly probe: Probe;
}

const OWN_CA = "set NGROK_CA_CERT to a copy of the gateway's ca.pem; if it is one, something intercepts TLS";

/**
 * @param serverAddr `host[:port]`; null: ngrok's cloud
 * @param authorities CAs of the gateway; null: that of ngrok's cloud
 */
export function routeTo(serverAddr: string | null, proxies: ProxyRules, authorities: TrustedCas | null): GatewayRoute {
  const address = parseGatewayAddress(serverAddr ?? CLOUD_ADDRESS);
  const proxy = proxyFor(proxies, 'https', address);
  const dial = proxy ? dialThrough(proxy) : directDial(sharedLookup());
  const trust = { ca: pemOf(authorities), adviceOnCa: serverAddr === null ? PORTAL_ADVICE : OWN_CA };
  return { address, proxy, dial, probe: (signal) => probeGateway(address, dial, trust, signal) };
}
