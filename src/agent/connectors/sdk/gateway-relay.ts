import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { createSecureContext, type SecureContext, TLSSocket } from 'node:tls';
import { messageOf } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log/log.ts';
import { withDeadline } from '../../../lib/time/deadline.ts';
import { connectToGateway, type GatewaySocketOptions } from '../gateway-socket.ts';
import { makeRelayCertificate } from './relay-certificate.ts';

export interface GatewayRelayOptions extends Pick<GatewaySocketOptions, 'address' | 'dial' | 'ca'> {
  log: Log;
  /** How long the gateway gets to close a connection that the SDK has ended. */
  lingerMs?: number;
}

export interface SdkServer {
  /** `127.0.0.1:port` */
  address: string;
  cert: string;
}

/** Below the deadline of a session (20 s), so that the reason is known by then. */
const CONNECT_MS = 15_000;
/** One session, and attempts that are ending. */
const MAX_CONNECTIONS = 16;
const LINGER_MS = 5_000;

/**
 * Connects the SDK to a gateway through a proxy, at an IPv6 address or at a name below localhost, none of which it supports
 * (1.7.0). The SDK connects to a port on loopback and trusts the certificate there, which is as short-lived as this object.
 * The relay connects to the gateway and verifies its certificate like the SDK would.
 *
 * It only forwards to that one gateway, for any program on this machine that connects to it.
 */
export class GatewayRelay {
  #listening: Promise<SdkServer> | null = null;
  #server: Server | null = null;
  #failure: string | null = null;
  readonly #clients = new Set<Socket>();

  constructor(private readonly options: GatewayRelayOptions) {}

  /** Why the last connection to the gateway failed; null when it succeeded. */
  get failure(): string | null {
    return this.#failure;
  }

  /** Opens the port at the first call and keeps it. */
  open(): Promise<SdkServer> {
    this.#listening ??= this.#listen().catch((error: unknown) => {
      this.#listening = null; // the next session tries again
      throw error;
    });
    return this.#listening;
  }

  close(): void {
    this.#server?.close();
    for (const client of this.#clients) client.destroy();
  }

  async #listen(): Promise<SdkServer> {
    const { cert, key } = makeRelayCertificate();
    const identity = createSecureContext({ cert, key });
    const server = createServer({ pauseOnConnect: true, allowHalfOpen: true, noDelay: true }, (client) => {
      this.#clients.add(client);
      client.once('close', () => this.#clients.delete(client));
      client.on('error', () => client.destroy());
      void this.#serve(client, identity);
    });
    server.maxConnections = MAX_CONNECTIONS;
    this.#server = server;
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    server.on('error', (err) => this.options.log.error({ err }, 'gateway relay cannot accept connections'));
    return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, cert };
  }

  /** The SDK's handshake waits for the gateway's, so that both succeed or both fail. */
  async #serve(client: Socket, identity: SecureContext): Promise<void> {
    const over = new AbortController();
    client.once('close', () => over.abort());
    try {
      const connecting = connectToGateway(this.options, over.signal);
      const gateway = await withDeadline(connecting, 'connecting', CONNECT_MS, (late) => void late.destroy());
      this.#failure = null;
      if (client.destroyed) return void gateway.destroy();
      const sdk = new TLSSocket(client, { isServer: true, secureContext: identity });
      pipeBoth(sdk, gateway, this.options.lingerMs ?? LINGER_MS);
    } catch (error) {
      if (!over.signal.aborted) this.#failure = messageOf(error);
      over.abort();
      client.destroy();
    }
  }
}

/** Pipes both ways; an end or error on one side ends the other. */
function pipeBoth(sdk: TLSSocket, gateway: TLSSocket, lingerMs: number): void {
  for (const [one, other] of [
    [sdk, gateway],
    [gateway, sdk],
  ] as const) {
    one.on('error', () => one.destroy());
    // Pending data is still delivered.
    one.once('close', () => other.destroySoon());
    one.pipe(other);
  }
  // A gateway that vanished never closes, and dead connections would use up the limit of the relay.
  sdk.once('end', () => setTimeout(() => gateway.destroy(), lingerMs).unref());
}
