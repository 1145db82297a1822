import { rootCertificates } from 'node:tls';
import { type Cidr, isUnspecified } from '../lib/network/ip-address.ts';
import { connectHere } from '../lib/network/load-balancers.ts';
import { type Fetch, fetchTrusting } from './fetch-trusting.ts';

interface GatewayHere {
  readonly host: string;
  readonly httpsPort: number;
  readonly balancers: readonly Cidr[];
}

/**
 * Reaches the gateway that runs on this machine, wherever its names lead.
 *
 * @param ca PEM of the gateway's own CA; empty: there is none
 */
export function fetchHere({ host, httpsPort, balancers }: GatewayHere, ca: string): Fetch {
  const place = { host: isUnspecified(host) ? '127.0.0.1' : host, port: httpsPort };
  return fetchTrusting({
    ca: [ca, ...rootCertificates].join('\n'),
    pinned: ca,
    address: { ...place, connect: () => connectHere(place, balancers) },
  });
}
