import { Agent } from 'node:https';
import { connect, type LookupFunction } from 'node:net';
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from 'node:tls';
import { type HandshakeParties, MeteredConnection } from '../network/metered-connection.ts';
import { withAddresses } from './server-handshake.ts';
import { TLS_CLIENT_OPTIONS } from './tls-options.ts';

/** Where to connect to, and what TLS requires there; see `connect` of node:net and node:tls. */
export interface ServerPlace
  extends Pick<ConnectionOptions, 'ca' | 'rejectUnauthorized' | 'servername' | 'ALPNProtocols'> {
  readonly host?: string | null | undefined;
  readonly port?: number | string | null | undefined;
  readonly lookup?: LookupFunction | undefined;
}

/**
 * Connects to a TLS server that somebody else chose. Its certificates are inspected before OpenSSL verifies them, and its key
 * exchange cannot be a costly one.
 *
 * @returns emits `connect`, `secureConnect` or `error`, as that of `connect` of node:tls does
 */
export function connectInspected(
  { host, port, lookup, ca, rejectUnauthorized, servername, ALPNProtocols }: ServerPlace,
  parties: HandshakeParties,
): TLSSocket {
  const [name, number] = [host ?? 'localhost', Number(port ?? 443)];
  const socket = connect({ host: name, port: number, ...(lookup && { lookup }) });
  const metered = new MeteredConnection(socket, parties, `${name}:${number}`);
  const secured = connectTls({
    ...{ ...TLS_CLIENT_OPTIONS, host: name, socket: metered },
    ...(ca !== undefined && { ca }),
    ...(rejectUnauthorized !== undefined && { rejectUnauthorized }),
    ...(servername !== undefined && { servername }),
    ...(ALPNProtocols !== undefined && { ALPNProtocols }),
  });
  metered.inspect(secured, 'server');
  // Of a connection that it does not read itself, Node takes for granted that it is open.
  Object.assign(secured, { connecting: true });
  socket.on('error', (error) => metered.destroy(error));
  socket.once('connect', () => {
    Object.assign(withAddresses(secured, socket), { connecting: false }).emit('connect');
  });
  secured.once('close', () => metered.destroy());
  return secured;
}

/** Connections of requests to servers that others choose, see {@link connectInspected}. */
export class InspectingAgent extends Agent {
  constructor(
    private readonly parties: HandshakeParties,
    options: ConstructorParameters<typeof Agent>[0] = {},
  ) {
    super(options);
  }

  override createConnection(options: ServerPlace): TLSSocket {
    return connectInspected(options, this.parties);
  }
}
