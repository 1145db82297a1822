import { readFileSync } from 'node:fs';
import { rootCertificates } from 'node:tls';
import { hasErrno } from '../../lib/errors.ts';

/** Where systems keep the authorities that they trust: Debian and Alpine, Fedora, SUSE, macOS. */
const BUNDLES = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/ca-bundle.pem',
  '/etc/ssl/cert.pem',
];

/**
 * The authorities that the operating system trusts, as the SDK finds them with `rootCas('host')`; those that Node
 * brings along where the system has none.
 *
 * @param chosen the file that SSL_CERT_FILE names in place of the system's
 * @returns PEM
 */
export function hostAuthorities(chosen: string | null): string {
  for (const file of chosen === null ? BUNDLES : [chosen]) {
    try {
      return readFileSync(file, 'utf8');
    } catch (error) {
      if (chosen !== null || !hasErrno(error, 'ENOENT')) throw error;
    }
  }
  return rootCertificates.join('\n');
}
