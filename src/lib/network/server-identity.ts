import { X509Certificate } from 'node:crypto';
import { isIPv6 } from 'node:net';
import { checkServerIdentity as checkByNode, type PeerCertificate } from 'node:tls';

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
