import { readFileSync } from 'node:fs';
import { rootCertificates } from 'node:tls';
import { hasErrno } from './errors.ts';

/** The CAs a server is verified with: PEM, or those of the operating system (as PEM for everything but the SDK). */
export type TrustedCas = { pem: string | Uint8Array } | { host: string };

/** Where operating systems keep their trusted CAs: Debian and Alpine, Fedora, SUSE, macOS. */
const BUNDLES = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/ca-bundle.pem',
  '/etc/ssl/cert.pem',
];

/**
 * The operating system's trusted CAs, as the SDK finds them with `rootCas('host')`. Node's own where the system has
 * none.
 *
 * @param chosen the file that SSL_CERT_FILE names instead
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
