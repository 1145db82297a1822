import { createHash, X509Certificate } from 'node:crypto';

/** Begins the application protocol (ALPN) by which a client asks for a chain of a CA that it has pinned; its id follows. */
const PREFIX = 'gateway-ca/';
/** A file with more has the CAs of an operating system. */
const MAX_PINNED = 8;

/** The digest of a CA's key: a renewed CA has the same one. */
export function caKeyDigest({ publicKey }: X509Certificate): string {
  return createHash('sha256')
    .update(publicKey.export({ type: 'spki', format: 'der' }))
    .digest('base64url');
}

/** Names a CA in a ClientHello, and to operators. Only TLS decides whom a client trusts. */
export function caIdOf(ca: X509Certificate): string {
  return caKeyDigest(ca).slice(0, 16);
}

/** The certificates of a PEM file. */
export function certificatesIn(pem: string | Uint8Array): X509Certificate[] {
  const found = Buffer.from(pem)
    .toString('latin1')
    .match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g);
  return (found ?? []).flatMap((each) => {
    try {
      return [new X509Certificate(each)];
    } catch {
      return []; // TLS ignores it, too.
    }
  });
}

/** Agents ask with the same CAs at each attempt, and reading certificates takes most of the time of one. */
let latest: { pem: string; protocols: readonly string[] } = { pem: '', protocols: [] };

/**
 * The protocols with which a client of a gateway asks for a chain that its pinned CAs accept: the gateway may have a certificate
 * of a public CA for the same name. Earlier gateways ignore them.
 *
 * @param pem null or left out: no CA is pinned
 * @returns none for the CAs of an operating system
 */
export function pinnedProtocols(pem: string | Uint8Array | null | undefined): string[] {
  const text = Buffer.from(pem ?? '').toString('latin1');
  if (text !== latest.pem)
    latest = { pem: text, protocols: protocolsFor([...new Set(certificatesIn(text).map(caIdOf))]) };
  return [...latest.protocols];
}

/** Servers of HTTP break off when they know none of the protocols. */
function protocolsFor(pinned: readonly string[]): string[] {
  return pinned.length === 0 || pinned.length > MAX_PINNED ? [] : [...pinned.map((id) => PREFIX + id), 'http/1.1'];
}

/** Options of a TLS client for a server, which may have no name. */
export function namedServer(
  serverName: string | undefined,
  protocols: string[],
): { servername?: string; ALPNProtocols?: string[] } {
  return {
    ...(serverName !== undefined && { servername: serverName }),
    ...(protocols.length > 0 && { ALPNProtocols: protocols }),
  };
}

/** The ids of the CAs that a client asks for. */
export function askedCas(protocols: readonly string[]): string[] {
  return protocols.flatMap((each) => (each.startsWith(PREFIX) ? [each.slice(PREFIX.length)] : []));
}
