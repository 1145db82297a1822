import { createSecureContext } from 'node:tls';
import type { EndpointOptions } from '../../agent-protocol/messages.ts';
import { RpcError } from '../../agent-protocol/rpc-error.ts';
import type { TlsTermination } from '../../traffic-policy/policy-subjects.ts';
import type { EndpointAddress } from '../endpoints/endpoint.ts';
import { EDGE_TERMINATION } from '../endpoints/endpoint.ts';

/**
 * What agents are told whose endpoint ends TLS at the edge without a certificate of theirs: an SDK takes the bytes that it
 * gets for its visitors' own TLS unless there is something here. They send it back when they bind again.
 */
export const OWN_CERTIFICATE = { cert: '', key: '' };

/**
 * How the edge is to end TLS for an endpoint; null when it is not to.
 *
 * @param demands PEM of the authorities that are to vouch for its clients, and whether its policy wants TLS to end here
 * @throws {RpcError} when there is no handshake at the edge in which clients could show a certificate
 */
export function terminationOf(
  { protocol, internal }: EndpointAddress,
  options: EndpointOptions,
  { clientAuthorities, byPolicy }: { clientAuthorities: readonly string[]; byPolicy: boolean },
): TlsTermination | null {
  const termination = protocol === 'https' || byPolicy ? EDGE_TERMINATION : null;
  return demanding(agentTermination(options) ?? termination, internal, clientAuthorities);
}

/** @throws {RpcError} when there is no handshake at the edge in which clients could show a certificate */
function demanding(
  termination: TlsTermination | null,
  internal: boolean,
  clientAuthorities: readonly string[],
): TlsTermination | null {
  if (clientAuthorities.length === 0) return termination;
  if (internal) throw new RpcError('ERR_NGROK_301', 'mutual TLS needs a public endpoint: this one is internal');
  if (termination === null) {
    throw new RpcError(
      'ERR_NGROK_301',
      'MutualTLSAtEdge: TLS has to end at the edge for that; send a TLSTermination, or a policy with terminate-tls',
    );
  }
  return { ...termination, clientAuthorities };
}

/**
 * How the edge is to end TLS for a `tls` endpoint whose agent has sent a certificate for that; null when it has not, and
 * TLS ends at the agent or behind it.
 *
 * @throws {RpcError} when certificate and key cannot be used
 */
function agentTermination({ TLSTermination: option }: EndpointOptions): TlsTermination | null {
  if (!option) return null;
  if (option.cert === '' && option.key === '') return EDGE_TERMINATION;
  const [certificate, privateKey] = [option.cert, option.key].map((pem) => Buffer.from(pem, 'base64').toString());
  try {
    createSecureContext({ cert: certificate, key: privateKey });
  } catch {
    // Without a cause: what OpenSSL was given must not be repeated.
    throw new RpcError(
      'ERR_NGROK_301',
      'TLSTermination: the certificate and its key are not PEM that belongs together',
    );
  }
  return { ...EDGE_TERMINATION, certificate: certificate ?? null, privateKey: privateKey ?? null };
}
