import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { withoutMapping } from '../../../lib/ip-address.ts';
import type { PolicyConnection, PolicyTls } from '../../../traffic-policy/policy-subjects.ts';
import type { ClientHello } from '../tls/client-hello.ts';

/** The address of an end that hung up already. */
const UNKNOWN = '0.0.0.0';

/** A public client's connection as the policy of one endpoint sees it. */
export class ClientConnection implements PolicyConnection {
  readonly clientIp: string;
  readonly clientPort: number;
  readonly serverIp: string;
  readonly serverPort: number;
  readonly startedAt: number;
  readonly tls: PolicyTls | null;
  results?: NonNullable<PolicyConnection['results']>;
  readonly #socket: Socket;

  /** @param startedAt milliseconds since 1970 */
  constructor(socket: Socket, startedAt: number, tls: PolicyTls | null) {
    this.#socket = socket;
    this.clientIp = withoutMapping(socket.remoteAddress ?? UNKNOWN);
    this.clientPort = socket.remotePort ?? 0;
    this.serverIp = withoutMapping(socket.localAddress ?? UNKNOWN);
    this.serverPort = socket.localPort ?? 0;
    this.startedAt = startedAt;
    this.tls = tls;
  }

  /** The same connection for another policy, which has to come to its own results. */
  anew(): ClientConnection {
    return new ClientConnection(this.#socket, this.startedAt, this.tls);
  }

  bytesIn(): number {
    return this.#socket.bytesRead;
  }

  bytesOut(): number {
    return this.#socket.bytesWritten;
  }
}

/**
 * What a connection's handshake came to.
 *
 * @param verifiedBy PEM of the authorities that the client's certificate was verified against
 * @returns null when there was none
 */
export function clientTls(socket: Socket, verifiedBy?: readonly string[]): PolicyTls | null {
  return socket instanceof TLSSocket ? new ClientTls(socket, verifiedBy) : null;
}

/** What a hello says before there is a handshake, and all that is known when there is none at the edge. */
export class HelloTls implements PolicyTls {
  readonly sni: string | null;
  readonly version = null;
  readonly cipherSuite = null;
  readonly alpn = null;
  readonly ja4 = null;
  readonly clientCertificate = null;
  readonly serverCertificate = null;

  constructor({ serverName }: ClientHello) {
    this.sni = serverName || null;
  }
}

/** What a finished handshake came to; looked up when a policy asks. */
class ClientTls implements PolicyTls {
  readonly ja4 = null;
  readonly verifiedBy: readonly string[];
  readonly #socket: TLSSocket;

  constructor(socket: TLSSocket, verifiedBy: readonly string[] = []) {
    this.#socket = socket;
    this.verifiedBy = verifiedBy;
  }

  get sni(): string | null {
    // Declared for the client's side alone; the server's holds what the ClientHello named, or false.
    const { servername } = this.#socket as TLSSocket & { servername?: string | false };
    return servername || null;
  }

  get version(): string | null {
    return this.#socket.getProtocol()?.replace('TLSv', '') ?? null;
  }

  get cipherSuite(): string | null {
    return this.#socket.getCipher()?.standardName ?? null;
  }

  get alpn(): string | null {
    return this.#socket.alpnProtocol || null;
  }

  get clientCertificate(): Uint8Array | null {
    return this.#socket.getPeerX509Certificate()?.raw ?? null;
  }

  get serverCertificate(): Uint8Array | null {
    return this.#socket.getX509Certificate()?.raw ?? null;
  }
}
