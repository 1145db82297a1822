import { X509Certificate } from 'node:crypto';
import { z } from 'zod';
import { RpcError } from '../../agent-protocol/rpc.ts';
import type { RawAction } from '../../traffic-policy/policy-text.ts';
import { demandClientCertificate } from './demand-client-certificate.ts';

const MAX_AUTHORITIES = 50;
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/** Concatenated PEM certificates in base64. */
export const ClientAuthorities = z.object({ mutual_tls_ca: z.string().max(512 * 1024) });

/**
 * Reads the CAs that must have signed clients' certificates.
 *
 * @param option name of the option
 * @returns one PEM certificate each; empty when the option is not set
 * @throws {RpcError} when it holds no certificate, or one that is not of a CA
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
      `${option}: contains ${number} PEM certificates; expected 1 to ${MAX_AUTHORITIES}`,
    );
  }
  for (const [at, certificate] of certificates.entries()) {
    const problem = problemOf(certificate);
    if (problem) throw new RpcError('ERR_NGROK_301', `${option}: certificate ${at + 1} ${problem}`);
  }
  return certificates;
}

/** The action that rejects clients whose certificate was not verified against the CAs. */
export function certificateRules(authorities: readonly string[]): RawAction[] {
  if (authorities.length === 0) return [];
  return [{ type: 'mutual-tls', prepare: () => demandClientCertificate(authorities) }];
}

/** Like ngrok, accepts only certificates with the basic constraint CA (RFC 5280, 4.2.1.9). */
function problemOf(pem: string): string | null {
  try {
    return new X509Certificate(pem).ca ? null : 'is not a CA certificate (basic constraint CA)';
  } catch {
    return 'cannot be parsed';
  }
}
