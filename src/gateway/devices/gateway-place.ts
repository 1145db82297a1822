import { X509Certificate } from 'node:crypto';
import { formatJoinCode } from '../../management/join-code.ts';
import { apiHost, signInHost } from '../endpoints/domain-names.ts';
import { urlOf } from '../endpoints/endpoint-address.ts';

/** How devices reach a gateway, and which CA they can trust. */
export interface GatewayPlace {
  /** Origin of the management API, with TLS. */
  origin: string;
  /** Whether another server, with a certificate of its own, serves that origin. */
  isProxied: boolean;
  signInOrigin: string;
  /** `host:port` for agents. */
  sessionAddress: string;
  tcpHost: string;
  caPem: string;
  /** Names whose certificates a public CA signs, as in the settings. */
  publicNames: 'none' | 'public' | 'all';
}

export function joinCode(
  { origin, isProxied, caPem, publicNames }: Pick<GatewayPlace, 'origin' | 'isProxied' | 'caPem' | 'publicNames'>,
  secret: string,
): string {
  const pin = publicNames === 'all' ? null : caPin(caPem);
  return formatJoinCode({ origin, pin, isPublic: isProxied || publicNames !== 'none', secret });
}

/** Where devices join. A secret never goes to an origin without TLS, so such a setting does not count. */
export function joinOrigin(
  apiUrl: string | null,
  baseDomain: string,
  httpsPort: number,
): Pick<GatewayPlace, 'origin' | 'isProxied'> {
  const host = apiHost(baseDomain);
  const own = urlOf({ protocol: 'https', host, port: httpsPort });
  if (!apiUrl?.startsWith('https:')) return { origin: own, isProxied: false };
  return { origin: apiUrl, isProxied: new URL(apiUrl).hostname !== host };
}

/** Where the management API and the dashboard are. */
export function apiOrigin(apiUrl: string | null, baseDomain: string, httpsPort: number): string {
  return apiUrl ?? urlOf({ protocol: 'https', host: apiHost(baseDomain), port: httpsPort });
}

/** Where people sign in: on the port of the management API, unless another server serves that. */
export function signInOrigin(apiUrl: string | null, baseDomain: string, httpsPort: number): string {
  const { origin, isProxied } = joinOrigin(apiUrl, baseDomain, httpsPort);
  const port = isProxied ? httpsPort : Number(new URL(origin).port || 443);
  return urlOf({ protocol: 'https', host: signInHost(baseDomain), port });
}

/** SHA-256 of a certificate, as `openssl x509 -fingerprint -sha256` shows it. */
function caPin(pem: string): Buffer {
  return Buffer.from(new X509Certificate(pem).fingerprint256.replaceAll(':', ''), 'hex');
}
