import type { Server } from 'node:https';
import type { Socket } from 'node:net';
import { type SecureContext, TLSSocket } from 'node:tls';
import type { Log } from '../../lib/log.ts';
import { ACME_TLS_PROTOCOL, answerTlsAlpn, type TlsAlpnChallenges } from '../certificates/challenge-tls-alpn.ts';
import { type ClientHello, readClientHello } from './client-hello.ts';
import { hostNameOf } from './host-name.ts';
import type { ServerCertificates } from './server-certificates.ts';

export interface TlsHandshakesOptions {
  certificates: ServerCertificates;
  /** What validations are answered with; left out: nothing. */
  challenges?: Pick<TlsAlpnChallenges, 'context'> | undefined;
  log: Log;
}

/** From the connection to the end of the handshake. */
const HANDSHAKE_MS = 10_000;
const PROTOCOLS = ['http/1.1'];

/**
 * The handshakes of a server in place of its own, which begin with a default certificate: OpenSSL then goes on to prefer
 * that one when it has another type of key than the certificate that SNICallback finds.
 */
export class TlsHandshakes {
  constructor(private readonly options: TlsHandshakesOptions) {}

  /** Takes over; to be called before there are listeners of others. */
  takeOver(server: Server): void {
    server.removeAllListeners('connection');
    server.on('connection', (socket: Socket) => {
      // An error ends in 'close', which all here wait for.
      socket.on('error', () => {});
      const timer = setTimeout(() => socket.destroy(), HANDSHAKE_MS);
      socket.once('close', () => clearTimeout(timer));
      this.#begin(socket, (secured) => {
        clearTimeout(timer);
        server.emit('secureConnection', secured);
      }).catch((error: unknown) => {
        this.options.log.error({ err: error }, 'a TLS connection could not be served');
        socket.destroy();
      });
    });
  }

  async #begin(socket: Socket, onSecure: (secured: TLSSocket) => void): Promise<void> {
    const hello = await readClientHello(socket);
    const validation = hello && this.#validation(hello);
    if (validation) {
      answerTlsAlpn(socket, validation);
      return;
    }
    // What is no hello is told so by OpenSSL, with the alert that belongs to it.
    const secureContext = await this.options.certificates.contextFor(hostNameOf(hello?.serverName ?? ''));
    if (!socket.destroyed) handshake(socket, secureContext, onSecure);
  }

  /** The context for a certificate authority that validates a name (RFC 8737, section 3). */
  #validation({ serverName, protocols }: ClientHello): SecureContext | undefined {
    const isValidation = protocols.length === 1 && protocols[0] === ACME_TLS_PROTOCOL;
    return isValidation ? this.options.challenges?.context(serverName) : undefined;
  }
}

function handshake(socket: Socket, secureContext: SecureContext, onSecure: (secured: TLSSocket) => void): void {
  const secured = new TLSSocket(socket, { isServer: true, secureContext, ALPNProtocols: PROTOCOLS });
  const end = () => secured.destroy();
  // Errors of TLS itself are told here alone, before the handshake and after it.
  secured.on('_tlsError', end).on('error', end);
  secured.once('secure', () => {
    // From here on errors are the HTTP server's.
    secured.off('error', end);
    onSecure(secured);
  });
}
