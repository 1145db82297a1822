import { connect as connectTcp } from 'node:net';
import { connect as connectTls, type PeerCertificate, type TLSSocket } from 'node:tls';
import type { GatewayAddress } from '../agent/connector/gateway-address.ts';
import { withDeadline } from '../lib/deadline.ts';

/** Who answered at an address, by the certificate that was presented. */
export interface Presented {
  /** Null: it took the connection, but does not speak TLS. */
  certificate: { subject: string; issuer: string; validFrom: Date; validTo: Date } | null;
  /** Why it cannot be trusted to be the gateway, in OpenSSL's word or Node's code; null when it can. */
  distrust: string | null;
}

const ANSWER_MS = 4_000;

/**
 * Looks at who answers at a gateway's address: TCP connect and TLS handshake, and nothing is sent.
 *
 * @param ca PEM of the authorities to trust
 * @throws the system's error when nobody answers
 */
export async function presentedAt(address: GatewayAddress, ca: string | Buffer): Promise<Presented> {
  const { host, port, serverName } = address;
  const tcp = connectTcp({ host, port, autoSelectFamily: true });
  try {
    const shaken = new Promise<Presented>((resolve, reject) => {
      const failed = (error: Error) => {
        // Whoever answers something that is no TLS is no gateway, but somebody.
        if (tcp.bytesRead > 0) resolve({ certificate: null, distrust: 'NOT_TLS' });
        else reject(error);
      };
      const tls = connectTls({
        socket: tcp,
        host,
        ca,
        rejectUnauthorized: false,
        ...(serverName !== undefined && { servername: serverName }),
      });
      tcp.on('error', failed);
      tls.on('error', failed);
      tls.on('close', () => failed(new Error('the connection was closed before TLS was answered')));
      tls.on('secureConnect', () => resolve(describe(tls)));
    });
    return await withDeadline(shaken, 'connecting', ANSWER_MS);
  } finally {
    tcp.destroy();
  }
}

function describe(tls: TLSSocket): Presented {
  const peer = tls.getPeerCertificate();
  // Node's types have an Error here, but it is the code of one.
  const distrust = tls.authorized ? null : String(tls.authorizationError ?? 'it is not trusted');
  return {
    certificate: {
      subject: nameOf(peer.subject),
      issuer: nameOf(peer.issuer),
      validFrom: new Date(peer.valid_from),
      validTo: new Date(peer.valid_to),
    },
    distrust,
  };
}

function nameOf(subject: PeerCertificate['subject'] | undefined): string {
  return (
    Object.entries(subject ?? {})
      .map(([name, value]) => `${name}=${String(value)}`)
      .join(', ') || 'nobody in particular'
  );
}
