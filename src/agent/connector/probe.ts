import { connect as connectTcp, type LookupFunction } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { messageOf } from '../../lib/errors.ts';
import type { GatewayAddress } from './gateway-address.ts';

/** What somebody at the gateway's address answered. */
export interface ProbeAnswer {
  /** Who the presented certificate says it is, such as `CN=portal.hotel.example`; null when TLS got no further. */
  certificate: string | null;
}

/**
 * Finds out whether anybody answers at an address: TCP connect, TLS handshake, and closed again. Whom the certificate
 * names does not matter here, as nothing is sent and nobody trusted; the session that follows verifies it.
 *
 * @param signal ends the attempt
 * @returns as soon as the other side sent anything, even a refusal of TLS
 * @throws the system's error when nothing came back; an AbortError when the signal came first
 */
export function probeGateway(
  address: GatewayAddress,
  lookup: LookupFunction,
  signal: AbortSignal,
): Promise<ProbeAnswer> {
  const { host, port, serverName } = address;
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const tcp = connectTcp({ host, port, lookup, autoSelectFamily: true, autoSelectFamilyAttemptTimeout: 2000 });
    const end = (settle: () => void) => {
      signal.removeEventListener('abort', aborted);
      settle();
      tls.destroy();
      tcp.destroy();
    };
    const aborted = () => end(() => reject(signal.reason));
    const failed = (error: Error) => {
      // An answer that is no TLS is still an answer: from then on the session's own error is the better one.
      end(() => (tcp.bytesRead > 0 ? resolve({ certificate: null }) : reject(flatten(error))));
    };
    const tls = connectTls({
      socket: tcp,
      rejectUnauthorized: false,
      ...(serverName !== undefined && { servername: serverName }),
    });
    signal.addEventListener('abort', aborted);
    tcp.on('error', failed);
    tls.on('error', failed);
    tls.on('close', () => failed(new Error('the connection was closed before TLS was answered')));
    tls.on('secureConnect', () => {
      const { subject } = tls.getPeerCertificate();
      const names = Object.entries(subject ?? {}).map(([name, value]) => `${name}=${String(value)}`);
      end(() => resolve({ certificate: names.join(', ') || null }));
    });
  });
}

/** A name with several addresses fails with several errors, and a message that is empty. */
function flatten(error: Error): Error {
  if (!(error instanceof AggregateError)) return error;
  return new Error(error.errors.map(messageOf).join('; '), { cause: error });
}
