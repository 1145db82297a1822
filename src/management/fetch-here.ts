import { rootCertificates } from 'node:tls';
import { type Cidr, isUnspecified } from '../lib/network/ip-address.ts';
import { connectHere } from '../lib/network/load-balancers.ts';
import { type Fetch, fetchTrusting } from './fetch-trusting.ts';

interface GatewayHere {
  readonly host: string;
  readonly httpsPort: number;
  readonly balancers: readonly Cidr[];
  /** PEM of further roots that its certificates lead to; null or left out: none. */
  readonly acme?: { readonly issuers?: string | null } | null;
}

/**
 * Reaches the gateway that runs on this machine, wherever its names lead.
 *
 * @param ca PEM of the gateway's own CA; empty: there is none
 */
export function fetchHere({ host, httpsPort, balancers, acme }: GatewayHere, ca: string): Fetch {
  const place = { host: isUnspecified(host) ? '127.0.0.1' : host, port: httpsPort };
  return fetchTrusting({
    ca: [ca, acme?.issuers ?? '', ...rootCertificates].join('\n'),
    pinned: ca,
    address: { ...place, connect: () => connectHere(place, balancers) },
  });
}
