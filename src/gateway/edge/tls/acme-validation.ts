import {
  ACME_TLS_PROTOCOL,
  answerTlsAlpn,
  type TlsAlpnChallenges,
} from '../../certificates/challenges/challenge-tls-alpn.ts';
import type { PendingConnection } from './tls-route.ts';

/**
 * Answers a certificate authority that validates a name by TLS-ALPN-01 (RFC 8737, section 3).
 *
 * @returns false when the connection is no validation
 */
export function answerValidation(
  { socket, hello }: PendingConnection,
  challenges: Pick<TlsAlpnChallenges, 'context'> | undefined,
): boolean {
  if (hello.protocols.length !== 1 || hello.protocols[0] !== ACME_TLS_PROTOCOL) return false;
  const context = challenges?.context(hello.serverName);
  if (context === undefined) return false;
  answerTlsAlpn(socket, context);
  return true;
}
