import { readFileSync } from 'node:fs';
import { rootCertificates } from 'node:tls';
import { hasErrno } from '../errors.ts';

/** The CAs that a server is verified with. `host`: those of the operating system, as PEM; the SDK finds them itself. */
export type TrustedCas = { pem: string | Uint8Array } | { host: string };

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
