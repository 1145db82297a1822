import type { Socket } from 'node:net';
import { connect as connectTls, type PeerCertificate, type TLSSocket } from 'node:tls';
import type { GatewayAddress } from './gateway-address.ts';

/** Who answered a TLS handshake, by the certificate that was presented. */
export interface Greeting {
  /** Null: it answers, but does not speak TLS. */
  certificate: { subject: string; issuer: string; validFrom: Date; validTo: Date } | null;
  /** Why it cannot be trusted to be the gateway, as Node's code of it; null when it can. */
  distrust: string | null;
}

/**
 * Shakes hands on a connection, and sends nothing else.
 *
 * @param socket connected to a gateway's address; for the caller to destroy, whatever comes of it
 * @param ca PEM of the authorities by which trust is judged; left out, the public ones
 * @throws the system's error when nothing came back; the signal's reason when that aborts first
 */
export function greet(
  socket: Socket,
  { host, serverName }: GatewayAddress,
  { ca, signal }: { ca?: string | Buffer; signal: AbortSignal },
): Promise<Greeting> {
  // What a proxy answered on the way does not count.
  const before = socket.bytesRead;
  return new Promise((resolve, reject) => {
    const failed = (error: Error) => {
      // An answer that is no TLS is still an answer.
      if (socket.bytesRead > before) resolve({ certificate: null, distrust: 'NOT_TLS' });
      else reject(error);
    };
    const aborted = () => reject(signal.reason);
    signal.addEventListener('abort', aborted);
    if (signal.aborted) aborted();
    const tls = connectTls({
      socket,
      host,
      rejectUnauthorized: false,
      ...(ca !== undefined && { ca }),
      ...(serverName !== undefined && { servername: serverName }),
    });
    socket.on('error', failed);
    tls.on('error', failed);
    tls.on('close', () => {
      signal.removeEventListener('abort', aborted);
      failed(new Error('the connection was closed before TLS was answered'));
    });
    tls.on('secureConnect', () => resolve(describe(tls)));
  });
}

function describe(tls: TLSSocket): Greeting {
  const peer = tls.getPeerCertificate();
  return {
    certificate: {
      subject: nameOf(peer.subject),
      issuer: nameOf(peer.issuer),
      validFrom: new Date(peer.valid_from),
      validTo: new Date(peer.valid_to),
    },
    // Node's types have an Error here, but it is the code of one.
    distrust: tls.authorized ? null : String(tls.authorizationError ?? 'it is not trusted'),
  };
}

function nameOf(subject: PeerCertificate['subject'] | undefined): string {
  const names = Object.entries(subject ?? {}).map(([name, value]) => `${name}=${String(value)}`);
  return names.join(', ') || 'nobody in particular';
}
