import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import type { ClientHello } from '../../../lib/network/client-hello.ts';
import { performHandshake } from '../../../lib/network/server-handshake.ts';
import { EDGE_TERMINATION } from '../../endpoints/endpoint.ts';
import type { CertificateSelection } from './certificate-selection.ts';
import type { HandshakeDemands } from './handshake-demands.ts';

/** A client before its handshake: its ClientHello has been parsed, but its bytes are still unread. */
export interface HelloClient {
  readonly socket: Socket;
  readonly hello: ClientHello;
  /** The host name in the SNI extension, in lower case; empty without one. */
  readonly hostName: string;
  /** The client has its turn: from now on, it has the whole time for the handshake. */
  handshakeBegins(): void;
  handshakeDone(): void;
}

export interface HandshakeOptions {
  /** Application protocols to offer; left out: no negotiation. */
  protocols?: string[];
  /** Left out: the defaults. */
  demands?: HandshakeDemands;
}

/** Performs the server's side of TLS handshakes. */
export class Handshakes {
  /** @param findAuthority finds the PEM of a certificate authority that demands name by its identifier */
  constructor(
    private readonly certificates: CertificateSelection,
    private readonly findAuthority: (id: string) => string | null,
  ) {}

  /**
   * Performs one handshake. When it fails, the connection is closed with the appropriate alert.
   *
   * @returns null when it failed
   * @throws when no certificate is available, or a demand cannot be met
   */
  async secure(client: HelloClient, options: HandshakeOptions = {}): Promise<TLSSocket | null> {
    const { socket, hostName, handshakeBegins, handshakeDone } = client;
    const { protocols, demands = EDGE_TERMINATION } = options;
    const secureContext = await this.certificates.contextFor(hostName, this.#withAuthorities(demands));
    const requestCert = demands.clientAuthorities.length > 0;
    const rejectUnauthorized = requestCert && demands.clientVerification !== 'request';
    const common = { secureContext, requestCert, rejectUnauthorized };
    const tls = { ...common, ...(protocols && { ALPNProtocols: protocols }) };
    const secured = await performHandshake(socket, tls, { onBegin: handshakeBegins });
    if (secured === null) return null;
    if (rejectUnauthorized && !isClientVerified(secured, demands)) {
      secured.destroy();
      return null;
    }
    handshakeDone();
    // OpenSSL knows no name when it resumes a session of TLS 1.2.
    return Object.assign(secured, { servername: hostName });
  }

  #withAuthorities(demands: HandshakeDemands): HandshakeDemands {
    const { clientAuthorities } = demands;
    if (!clientAuthorities.some(isIdentifier)) return demands;
    return { ...demands, clientAuthorities: clientAuthorities.map((authority) => this.#pemOf(authority)) };
  }

  #pemOf(authority: string): string {
    if (!isIdentifier(authority)) return authority;
    const pem = this.findAuthority(authority);
    if (pem === null) throw new Error(`unknown certificate authority ${authority}`);
    return pem;
  }
}

const isIdentifier = (authority: string): boolean => authority.startsWith('ca_');

/** OpenSSL ensures that there is a certificate; Node leaves its verification to its own servers. */
function isClientVerified(secured: TLSSocket, { clientVerification }: HandshakeDemands): boolean {
  if (secured.getPeerX509Certificate() === undefined) return false;
  if (clientVerification === 'require-any') return true;
  const { _handle: handle } = secured as TLSSocket & { _handle?: { verifyError(): Error | null } };
  return handle?.verifyError() === null;
}
