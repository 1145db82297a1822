import type { BindOptions } from '../../agent-protocol/messages.ts';
import { RpcError } from '../../agent-protocol/rpc.ts';
import { messageOf } from '../../lib/errors.ts';
import { readKeyPair } from '../../lib/network/usual-keys.ts';
import type { TlsTermination } from '../../traffic-policy/policy-subjects.ts';
import { EDGE_TERMINATION, type EndpointAddress } from '../endpoints/online-endpoint.ts';

/**
 * The `TLSTermination` of an endpoint that terminates TLS with the gateway's certificate. Without it an SDK takes the
 * bytes it gets for its clients' own TLS. Agents send it back when they bind again.
 */
export const OWN_CERTIFICATE = { cert: '', key: '' };

/**
 * How the edge terminates TLS for an endpoint; null when it does not. @throws {RpcError}
 * @param demands PEM of the CAs that must have signed its clients' certificates, and whether its policy terminates TLS
 */
export function terminationOf(
  { protocol, internal }: EndpointAddress,
  options: BindOptions,
  { clientAuthorities, byPolicy }: { clientAuthorities: readonly string[]; byPolicy: boolean },
): TlsTermination | null {
  const termination = protocol === 'https' || byPolicy ? EDGE_TERMINATION : null;
  return withClientAuthorities(agentTermination(options) ?? termination, internal, clientAuthorities);
}

function withClientAuthorities(
  termination: TlsTermination | null,
  internal: boolean,
  clientAuthorities: readonly string[],
): TlsTermination | null {
  if (clientAuthorities.length === 0) return termination;
  if (internal)
    throw new RpcError('ERR_NGROK_301', 'mutual TLS is not supported on internal endpoints; bind a public one');
  if (termination === null) {
    throw new RpcError(
      'ERR_NGROK_301',
      'MutualTLSAtEdge: the edge must terminate TLS; add TLSTermination, or a policy with terminate-tls',
    );
  }
  return { ...termination, clientAuthorities };
}

/** @throws {RpcError} when the certificate and key cannot be used */
function agentTermination({ TLSTermination: option }: BindOptions): TlsTermination | null {
  if (!option) return null;
  if (option.cert === '' && option.key === '') return EDGE_TERMINATION;
  const [certificate = '', privateKey = ''] = [option.cert, option.key].map((pem) =>
    Buffer.from(pem, 'base64').toString(),
  );
  try {
    const { cert, key } = readKeyPair(certificate, privateKey);
    return { ...EDGE_TERMINATION, certificate: cert, privateKey: key };
  } catch (error) {
    throw new RpcError('ERR_NGROK_301', `TLSTermination: ${messageOf(error)}`);
  }
}
