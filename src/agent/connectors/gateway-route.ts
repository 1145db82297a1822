import type { LookupAddress } from 'node:dns';
import type { LookupFunction } from 'node:net';
import { type Dial, dialThrough, directDial } from '../../lib/network/dial.ts';
import { addressesOf } from '../../lib/network/loopback-names.ts';
import { type ProxyRules, type ProxyServer, proxyFor } from '../../lib/network/proxy-rules.ts';
import type { TrustedCas } from '../../lib/network/trusted-cas.ts';
import { CLOUD_ADDRESS, type GatewayAddress, parseGatewayAddress } from './gateway-address.ts';
import { pemOf } from './gateway-ca.ts';
import { type Probe, probeGateway } from './gateway-probe.ts';
import { PORTAL_ADVICE } from './tls-probe.ts';

type Answer = (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void;

/**
 * getaddrinfo cannot be cancelled, waits 5 s per try for a silent name server, and has two threads of libuv's pool. So at
 * most two run at a time and all other callers wait for the newer one. A queue of stale look-ups would delay the first
 * one that can be answered.
 */
const MAX_RUNNING = 2;

/** Creates a `lookup` for node:net whose concurrent callers share look-ups; all must ask for the same name. */
function sharedLookup(): LookupFunction {
  const running: Answer[][] = [];
  const ask = (host: string, waiting: Answer[]) => {
    running.push(waiting);
    const end = (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => {
      running.splice(running.indexOf(waiting), 1);
      for (const answer of waiting) answer(error, addresses);
    };
    addressesOf(host).then(
      (addresses) => end(null, addresses),
      (error: NodeJS.ErrnoException) => end(error, []),
    );
  };
  return (host, options, callback) => {
    const answer: Answer = (error, addresses) => {
      const [first] = addresses ?? [];
      if (options.all) callback(error, addresses ?? []);
      else callback(error, first?.address ?? '', first?.family);
    };
    const newest = running.at(-1);
    if (running.length < MAX_RUNNING || !newest) ask(host, [answer]);
    else newest.push(answer);
  };
}

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
