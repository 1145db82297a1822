import { createSecureContext } from 'node:tls';
import type { TlsTermination } from '../../traffic-policy/steps.ts';
import { EDGE_TERMINATION } from '../endpoint.ts';
import type { EndpointOptions } from './messages.ts';
import { Refusal } from './refusal.ts';

/**
 * How the edge is to end TLS for a `tls` endpoint whose agent has sent a certificate for that; null when it has not, and
 * TLS ends at the agent or behind it.
 *
 * @throws {Refusal} when certificate and key cannot be used
 */
export function agentTermination({ TLSTermination: option }: EndpointOptions): TlsTermination | null {
  if (!option) return null;
  const [certificate, privateKey] = [option.cert, option.key].map((pem) => Buffer.from(pem, 'base64').toString());
  try {
    createSecureContext({ cert: certificate, key: privateKey });
  } catch {
    // Without a cause: what OpenSSL was given must not be repeated.
    throw new Refusal('ERR_NGROK_301', 'TLSTermination: the certificate and its key are not PEM that belongs together');
  }
  return { ...EDGE_TERMINATION, certificate: certificate ?? null, privateKey: privateKey ?? null };
}
