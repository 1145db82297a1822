import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { EDGE_TERMINATION, type GatewayEndpoint } from '../../endpoints/endpoint.ts';
import type { ClientRequest } from '../http/client-message.ts';

/**
 * Whether a request's TLS connection must not serve its host (RFC 9110, 15.5.20). Browsers send requests for several hosts
 * over one HTTP/2 connection when its certificate covers them (RFC 9113, 9.1.1). But an endpoint's demands on handshakes
 * apply only to connections that named it.
 *
 * @param endpoint that serves the host
 */
export function isMisdirected(
  { socket, httpVersion }: ClientRequest,
  host: string,
  endpoint: GatewayEndpoint | undefined,
): boolean {
  const isShared = httpVersion === '2.0';
  if (!isShared && !(endpoint && demandsHandshake(endpoint))) return false;
  if (isNamed(socket, host)) return false;
  if (endpoint && (demandsHandshake(endpoint) || endpoint.policy.onTcpConnect !== null)) return true;
  return isShared && !isCovered(socket, host);
}

function demandsHandshake({ tls, policy }: GatewayEndpoint): boolean {
  if (policy.terminatesTls) return true;
  return tls !== null && (tls.clientAuthorities.length > 0 || tls.minVersion !== EDGE_TERMINATION.minVersion);
}

function isNamed(socket: Socket, host: string): boolean {
  // Node's types declare it for clients only.
  return (socket as Socket & { servername?: string }).servername === host;
}

function isCovered(socket: Socket, host: string): boolean {
  return socket instanceof TLSSocket && socket.getX509Certificate()?.checkHost(host) !== undefined;
}
