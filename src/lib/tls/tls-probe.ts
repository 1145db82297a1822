import type { Socket } from 'node:net';
import { connect as connectTls, type PeerCertificate, type TLSSocket } from 'node:tls';
import { namedServer } from './pinned-chain.ts';
import { checkServerIdentity } from './tls-options.ts';

export interface TlsAnswer {
  /** The certificate presented; null when the handshake failed before that. */
  certificate: { subject: string; issuer: string; validFrom: Date; validTo: Date; isForName: boolean } | null;
  /** Node's code for why the certificate is not trusted, or why the handshake failed; null when it is trusted. */
  distrust: string | null;
}

/** What to do about a captive portal, or a proxy that does the same. */
export const PORTAL_ADVICE = 'a captive portal or proxy intercepts the connection: log in to it, or exempt this device';
/** What to do where connections are accepted, but get no answer. */
export const SILENCE_ADVICE =
  'a captive portal or firewall may hold the connection: log in to it, or exempt this device; if large packets are lost, ' +
  'lower the MTU; otherwise check the gateway';

/** Node's codes for a valid certificate of an unknown CA. */
const UNKNOWN_CA = new Set([
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
]);
/** Whether a connection has failed because another CA has signed the certificate. */
export function isOfUnknownCa(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  return UNKNOWN_CA.has((error as NodeJS.ErrnoException).code ?? '') || isOfUnknownCa(error.cause);
}

/** A trusted CA signed the certificate, but for another name. */
const OTHER_NAME = 'ERR_TLS_CERT_ALTNAME_INVALID';
/** OpenSSL's errors for an answer that does not even begin like TLS, such as `HTTP/1.1 302 Found`. */
const PLAIN_TEXT = new Set(['ERR_SSL_WRONG_VERSION_NUMBER', 'ERR_SSL_PACKET_LENGTH_TOO_LONG']);

/** Why an answer is not trusted, as far as an operator can do something about it. `foreign`: somebody else answers. */
export type DistrustKind = 'plain text' | 'foreign' | 'unknown CA' | 'other name';

/** Judges an answer; null: it is trusted, or its certificate is too old or too new, or the handshake failed. */
export function distrustKind({ certificate, distrust }: TlsAnswer): DistrustKind | null {
  if (distrust === null) return null;
  if (PLAIN_TEXT.has(distrust)) return 'plain text';
  if (UNKNOWN_CA.has(distrust)) return certificate?.isForName === false ? 'foreign' : 'unknown CA';
  return distrust === OTHER_NAME ? 'other name' : null;
}

/**
 * Does a TLS handshake on a connection, and sends nothing else.
 *
 * @param socket connected to a gateway's address; the caller destroys it
 * @param ca PEM of the trusted CAs; if left out, the public ones
 * @param protocols see `pinnedProtocols`; left out: none
 * @throws the system's error when nothing came back; the signal's reason when that aborts first
 */
export function probeTls(
  socket: Socket,
  { host, serverName }: { host: string; serverName: string | undefined },
  { ca, protocols = [], signal }: { ca?: string | Buffer; protocols?: string[]; signal: AbortSignal },
): Promise<TlsAnswer> {
  // Bytes of a proxy's answer do not count.
  const before = socket.bytesRead;
  return new Promise((resolve, reject) => {
    const failed = (error: NodeJS.ErrnoException) => {
      // An answer that is not TLS is still an answer.
      if (socket.bytesRead > before) resolve({ certificate: null, distrust: error.code ?? 'NOT_TLS' });
      else reject(error);
    };
    const aborted = () => reject(signal.reason);
    signal.addEventListener('abort', aborted);
    if (signal.aborted) aborted();
    const tls = connectTls({
      socket,
      host,
      checkServerIdentity,
      rejectUnauthorized: false,
      ...(ca !== undefined && { ca }),
      ...namedServer(serverName, protocols),
    });
    socket.on('error', failed);
    tls.on('error', failed);
    tls.on('close', () => {
      signal.removeEventListener('abort', aborted);
      failed(new Error('connection closed before the TLS handshake'));
    });
    tls.on('secureConnect', () => resolve(describe(tls, serverName ?? host)));
  });
}

function describe(tls: TLSSocket, name: string): TlsAnswer {
  const peer = tls.getPeerCertificate();
  return {
    certificate: {
      subject: nameOf(peer.subject),
      issuer: nameOf(peer.issuer),
      validFrom: new Date(peer.valid_from),
      validTo: new Date(peer.valid_to),
      isForName: checkServerIdentity(name, peer) === undefined,
    },
    // Node's types say Error, but it is a code.
    distrust: tls.authorized ? null : String(tls.authorizationError ?? 'not trusted'),
  };
}

function nameOf(subject: PeerCertificate['subject'] | undefined): string {
  const names = Object.entries(subject ?? {}).map(([name, value]) => `${name}=${String(value)}`);
  return names.join(', ') || 'no subject';
}
