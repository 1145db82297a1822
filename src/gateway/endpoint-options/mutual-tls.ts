import { X509Certificate } from 'node:crypto';
import { z } from 'zod';
import { RpcError } from '../../agent-protocol/rpc-error.ts';
import type { RawAction } from '../../traffic-policy/policy-text.ts';
import { demandClientCertificate } from './demand-client-certificate.ts';

const MAX_AUTHORITIES = 50;
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/** PEM certificates, one after another, in base64. */
export const ClientAuthorities = z.object({ mutual_tls_ca: z.string().max(512 * 1024) });

/**
 * The certificate authorities that are to vouch for clients.
 *
 * @param option name of the option
 * @returns a PEM certificate each; empty when the option is not set
 * @throws {RpcError} when there is none in it, or one that is no certificate of an authority
 */
export function parseAuthorities(
  option: string,
  value: z.output<typeof ClientAuthorities> | null | undefined,
): readonly string[] {
  if (!value) return [];
  const pem = Buffer.from(value.mutual_tls_ca, 'base64').toString('latin1');
  const certificates = pem.match(CERTIFICATE) ?? [];
  const number = certificates.length;
  if (number === 0 || number > MAX_AUTHORITIES) {
    throw new RpcError(
      'ERR_NGROK_301',
      `${option}: holds ${number} PEM certificates; 1 to ${MAX_AUTHORITIES} are needed`,
    );
  }
  for (const [at, certificate] of certificates.entries()) {
    const problem = problemOf(certificate);
    if (problem) throw new RpcError('ERR_NGROK_301', `${option}: certificate ${at + 1} ${problem}`);
  }
  return certificates;
}

/** The actions that let in those alone whom the handshake has found to have a certificate of the authorities. */
export function certificateRules(authorities: readonly string[]): RawAction[] {
  if (authorities.length === 0) return [];
  return [{ type: 'mutual-tls', prepare: () => demandClientCertificate(authorities) }];
}

/** ngrok, too, takes those alone that say of themselves that they may sign (RFC 5280, 4.2.1.9). */
function problemOf(pem: string): string | null {
  try {
    return new X509Certificate(pem).ca ? null : 'is not that of an authority (basic constraint CA)';
  } catch {
    return 'cannot be read';
  }
}
