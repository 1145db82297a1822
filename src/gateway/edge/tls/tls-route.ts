import type { Socket } from 'node:net';
import type { ClientHello } from '../../../lib/network/client-hello.ts';

/** A TLS connection before its handshake: its ClientHello has been parsed, but its bytes are still unread. */
export interface PendingConnection {
  readonly socket: Socket;
  readonly hello: ClientHello;
  /** The host name in the SNI extension, in lower case; empty without one. */
  readonly hostName: string;
  /** The client has its turn: from now on, it has the whole time for the handshake. */
  handshakeBegins(): void;
  handshakeDone(): void;
}

/** Serves connections for some host names. */
export interface TlsRoute {
  /** @returns false when the connection is for another route; it is unchanged then */
  serve(pending: PendingConnection): Promise<boolean>;
}
