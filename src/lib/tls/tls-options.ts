import { constants, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { isIPv6 } from 'node:net';
import {
  checkServerIdentity as checkByNode,
  createSecureContext,
  DEFAULT_CIPHERS,
  type PeerCertificate,
  rootCertificates,
  type SecureContextOptions,
} from 'node:tls';
import { hasErrno } from '../errors.ts';

/**
 * Groups of key exchange. OpenSSL's own list has some that cost a hundred times as much, and the other side chooses: with
 * `ffdhe8192`, one ClientHello takes 140 ms. OpenSSL knows the hybrid with ML-KEM since 3.5; a client sends keys for those
 * with a star at once.
 */
const GROUPS =
  ['*X25519MLKEM768:*X25519:P-256:X448:P-384', 'X25519:P-256:X448:P-384'].find(isSupported) ?? 'X25519:P-256:P-384';

function isSupported(ecdhCurve: string): boolean {
  try {
    createSecureContext({ ecdhCurve });
    return true;
  } catch {
    return false; // OpenSSL does not know a group.
  }
}

/**
 * Options of the TLS client for servers that others choose. A server of TLS 1.2 names the group of a key exchange with DHE:
 * one of 10,000 bits takes a second. After a renegotiation, it could send further certificates.
 */
export const TLS_CLIENT_OPTIONS: SecureContextOptions = {
  ciphers: `${DEFAULT_CIPHERS}:!DHE`,
  ecdhCurve: `${GROUPS}:P-521`,
  secureOptions: constants.SSL_OP_NO_RENEGOTIATION,
};

/**
 * Options of all TLS servers. The server's order of suites counts, save that a client without hardware for AES gets
 * ChaCha20. TLS 1.2 has only suites with forward secrecy and authenticated encryption; clients since about 2015 have one.
 * Renegotiation is off: it costs the server a handshake each time, and no client needs it.
 */
export const TLS_SERVER_OPTIONS: SecureContextOptions = {
  minVersion: 'TLSv1.2',
  ciphers: [
    ...['TLS_AES_256_GCM_SHA384', 'TLS_CHACHA20_POLY1305_SHA256', 'TLS_AES_128_GCM_SHA256'],
    ...['ECDHE+AESGCM', 'ECDHE+CHACHA20'],
  ].join(':'),
  honorCipherOrder: true,
  ecdhCurve: GROUPS,
  secureOptions: constants.SSL_OP_NO_RENEGOTIATION | constants.SSL_OP_PRIORITIZE_CHACHA,
};

/**
 * Checks that a certificate is for a host, as Node does. Node 22.23 rejects every certificate for an IPv6 address, so
 * OpenSSL decides on those.
 *
 * @param host name or IP address
 * @returns why the certificate does not match; undefined when it does
 */
export function checkServerIdentity(host: string, certificate: PeerCertificate): Error | undefined {
  const error = checkByNode(host, certificate);
  if (error === undefined || !isIPv6(host)) return error;
  return new X509Certificate(certificate.raw).checkIP(host) === undefined ? error : undefined;
}

/**
 * The CAs that a server is verified with. `host`: those of the operating system, as PEM; the SDK finds them itself. `own`: that
 * of the gateway, which may sign its certificate again when public CAs have done so.
 */
export type TrustedCas = { pem: string | Uint8Array } | { host: string; own?: string | Uint8Array | null };

/** PEM of all CAs that a server is verified with. */
export function trustedPem(authorities: TrustedCas): string {
  if ('pem' in authorities) return Buffer.from(authorities.pem).toString();
  const own = pinnedPem(authorities);
  return own === null ? authorities.host : `${own}\n${authorities.host}`;
}

/** PEM of the gateway's own CAs among them; null: only those of the operating system are trusted. */
export function pinnedPem(authorities: TrustedCas): string | null {
  const pinned = 'pem' in authorities ? authorities.pem : (authorities.own ?? null);
  return pinned === null ? null : Buffer.from(pinned).toString();
}

/** Trusted CAs of Debian and Alpine, Fedora, SUSE, and macOS. */
const BUNDLES = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/ca-bundle.pem',
  '/etc/ssl/cert.pem',
];

/**
 * Reads the operating system's trusted CAs, as the SDK does with `rootCas('host')`. Falls back to Node's own.
 *
 * @param chosen the file that SSL_CERT_FILE names
 * @returns PEM
 */
export function systemCas(chosen: string | null): string {
  for (const file of chosen === null ? BUNDLES : [chosen]) {
    try {
      return readFileSync(file, 'utf8');
    } catch (error) {
      if (chosen !== null || !hasErrno(error, 'ENOENT')) throw error;
    }
  }
  return rootCertificates.join('\n');
}
