import { TLSSocket } from 'node:tls';
import { EDGE_TERMINATION } from '../../endpoints/endpoint.ts';
import type { CertificateSelection } from './certificate-selection.ts';
import type { HandshakeDemands } from './tls-contexts.ts';
import type { Visitor } from './tls-mux.ts';

export interface HandshakeOptions {
  /** What may be spoken; left out: whatever both sides take for granted. */
  protocols?: string[];
  /** What is demanded of the client, and shown to it. */
  demands?: HandshakeDemands;
}

/** Ends TLS with visitors whose hello has been peeked at. */
export class Handshakes {
  /** @param authorityPem finds the certificate authorities that demands name by their identifier */
  constructor(
    private readonly certificates: CertificateSelection,
    private readonly authorityPem: (id: string) => string | null,
  ) {}

  /**
   * Does a handshake. A connection with which it fails is closed, with the alert that belongs to it.
   *
   * @returns null when it failed
   * @throws when there is no certificate for it, or a demand cannot be met
   */
  async secure(visitor: Visitor, options: HandshakeOptions = {}): Promise<TLSSocket | null> {
    const { socket, name, arrived } = visitor;
    const { protocols, demands = EDGE_TERMINATION } = options;
    const secureContext = await this.certificates.contextFor(name, this.#withAuthorities(demands));
    if (socket.destroyed) return null;
    const requestCert = demands.clientAuthorities.length > 0;
    const rejectUnauthorized = requestCert && demands.clientVerification !== 'request';
    const common = { isServer: true, secureContext, requestCert, rejectUnauthorized };
    const secured = new TLSSocket(socket, { ...common, ...(protocols && { ALPNProtocols: protocols }) });
    const end = () => secured.destroy();
    // Errors of TLS itself are told here alone, before the handshake and after it.
    secured.on('_tlsError', end).on('error', end);
    await new Promise<void>((resolve) => {
      secured.once('secure', resolve).once('close', resolve);
    });
    if (rejectUnauthorized && !secured.destroyed && !hasShownItself(secured, demands)) end();
    if (secured.destroyed) return null;
    arrived();
    // From here on errors are those of whoever takes the connection.
    secured.off('error', end);
    return secured;
  }

  #withAuthorities(demands: HandshakeDemands): HandshakeDemands {
    const { clientAuthorities } = demands;
    if (!clientAuthorities.some((authority) => authority.startsWith('ca_'))) return demands;
    return { ...demands, clientAuthorities: clientAuthorities.map((authority) => this.#pemOf(authority)) };
  }

  #pemOf(authority: string): string {
    if (!authority.startsWith('ca_')) return authority;
    const pem = this.authorityPem(authority);
    if (pem === null) throw new Error(`there is no certificate authority ${authority}`);
    return pem;
  }
}

/** OpenSSL has seen to it that there is a certificate; whether an authority vouches for it, Node leaves to its servers. */
function hasShownItself(secured: TLSSocket, { clientVerification }: HandshakeDemands): boolean {
  if (secured.getPeerX509Certificate() === undefined) return false;
  if (clientVerification === 'require-any') return true;
  const { _handle: handle } = secured as TLSSocket & { _handle?: { verifyError(): Error | null } };
  return handle?.verifyError() === null;
}
