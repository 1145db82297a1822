import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { hostPort, withoutMapping } from '../../../lib/network/ip-address.ts';
import type { PolicyConnection, PolicyTls } from '../../../traffic-policy/policy-subjects.ts';
import type { RuleRecord } from '../../../traffic-policy/rule-record.ts';

const UNKNOWN = '0.0.0.0';

/** A client's connection as the policy of one endpoint sees it. */
export class ClientConnection implements PolicyConnection {
  readonly clientIp: string;
  readonly clientPort: number;
  readonly serverIp: string;
  readonly serverPort: number;
  network?: string;
  results?: NonNullable<PolicyConnection['results']>;
  /** The rules of on_tcp_connect that acted; undefined when nobody watched. */
  record: RuleRecord | undefined;
  /** `ip:port` */
  readonly client: string;

  constructor(
    private readonly socket: Socket,
    readonly startedAt: number,
    readonly tls: PolicyTls | null,
  ) {
    this.clientIp = withoutMapping(socket.remoteAddress ?? UNKNOWN);
    this.clientPort = socket.remotePort ?? 0;
    this.client = hostPort(this.clientIp, this.clientPort);
    this.serverIp = withoutMapping(socket.localAddress ?? UNKNOWN);
    this.serverPort = socket.localPort ?? 0;
  }

  /** The same connection for another endpoint's policy, without the results of this one. */
  forNextPolicy(): ClientConnection {
    return new ClientConnection(this.socket, this.startedAt, this.tls);
  }

  bytesIn(): number {
    return this.socket.bytesRead;
  }

  bytesOut(): number {
    return this.socket.bytesWritten;
  }
}

/** @param verifiedBy PEM of the authorities that the client's certificate was verified against */
export function clientTls(socket: Socket, verifiedBy?: readonly string[]): PolicyTls | null {
  return socket instanceof TLSSocket ? new ClientTls(socket, verifiedBy) : null;
}

/** What a ClientHello reveals: all that is known before the handshake, or when the edge does not terminate TLS. */
export class HelloTls implements PolicyTls {
  readonly version = null;
  readonly cipherSuite = null;
  readonly alpn = null;
  readonly ja4 = null;
  readonly clientCertificate = null;
  readonly serverCertificate = null;

  constructor(readonly sni: string | null) {}
}

/** The result of a handshake; looked up only when a policy asks. */
class ClientTls implements PolicyTls {
  readonly ja4 = null;

  constructor(
    private readonly socket: TLSSocket,
    readonly verifiedBy: readonly string[] = [],
  ) {}

  get sni(): string | null {
    // Node's types declare it for clients only. Handshakes sets it to the name that the connection was routed by.
    const { servername } = this.socket as TLSSocket & { servername?: string };
    return servername || null;
  }

  get version(): string | null {
    return this.socket.getProtocol()?.replace('TLSv', '') ?? null;
  }

  get cipherSuite(): string | null {
    return this.socket.getCipher()?.standardName ?? null;
  }

  get alpn(): string | null {
    return this.socket.alpnProtocol || null;
  }

  get clientCertificate(): Uint8Array | null {
    return this.socket.getPeerX509Certificate()?.raw ?? null;
  }

  get serverCertificate(): Uint8Array | null {
    return this.socket.getX509Certificate()?.raw ?? null;
  }
}
