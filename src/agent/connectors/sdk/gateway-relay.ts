import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { connect as connectTls, createSecureContext, type SecureContext, TLSSocket } from 'node:tls';
import { withDeadline } from '../../../lib/deadline.ts';
import type { Dial } from '../../../lib/dial.ts';
import { messageOf } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log.ts';
import type { GatewayAddress } from '../gateway-address.ts';
import { makeRelayCertificate } from './relay-certificate.ts';

export interface GatewayRelayOptions {
  address: GatewayAddress;
  dial: Dial;
  /** PEM of the authorities that may vouch for the gateway. */
  ca: string | Uint8Array;
  log: Log;
  /** Milliseconds that the gateway gets to close a connection which the SDK has ended. */
  lingerMs?: number;
}

/** What the SDK needs to know of a relay. */
export interface RelayEntry {
  /** `127.0.0.1:port` */
  address: string;
  /** PEM of the certificate that it presents there. */
  cert: string;
}

/** Less than a session's own deadline (20 s), so that the reason is known when that ends. */
const CONNECT_MS = 15_000;
/** One session, and attempts that are on their way out. */
const MAX_CONNECTIONS = 16;
const KEEP_ALIVE_MS = 30_000;
const LINGER_MS = 5_000;

/**
 * A way to the gateway that the SDK (1.7.0) cannot take by itself: it knows no proxies, and no IPv6 addresses. The
 * SDK connects to a port on loopback instead, and trusts the certificate there, which lives and dies with this object.
 * Behind it the relay connects to the gateway and verifies its certificate as the SDK would have.
 *
 * It leads to that one gateway and to nothing else, whoever on this machine connects to it.
 */
export class GatewayRelay {
  #door: Promise<RelayEntry> | null = null;
  #server: Server | null = null;
  #failure: string | null = null;
  readonly #clients = new Set<Socket>();

  constructor(private readonly options: GatewayRelayOptions) {}

  /** Why the latest connection to the gateway did not come about; null when it did. */
  get failure(): string | null {
    return this.#failure;
  }

  /** Opens the port at the first call; it stays the same from then on. */
  open(): Promise<RelayEntry> {
    this.#door ??= this.#listen().catch((error: unknown) => {
      this.#door = null; // the next session tries again
      throw error;
    });
    return this.#door;
  }

  /** Ends every connection. */
  close(): void {
    this.#server?.close();
    for (const client of this.#clients) client.destroy();
  }

  async #listen(): Promise<RelayEntry> {
    const { cert, key } = makeRelayCertificate();
    const identity = createSecureContext({ cert, key });
    const server = createServer({ pauseOnConnect: true, allowHalfOpen: true }, (client) => {
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

  /** The SDK's handshake waits for the gateway's, so that it ends as that does. */
  async #serve(client: Socket, identity: SecureContext): Promise<void> {
    const over = new AbortController();
    client.once('close', () => over.abort());
    try {
      const connecting = this.#connect(over.signal);
      const gateway = await withDeadline(connecting, 'connecting', CONNECT_MS, (late) => void late.destroy());
      this.#failure = null;
      if (client.destroyed) return void gateway.destroy();
      const sdk = new TLSSocket(client, { isServer: true, secureContext: identity });
      join(sdk, gateway, this.options.lingerMs ?? LINGER_MS);
    } catch (error) {
      if (!over.signal.aborted) this.#failure = messageOf(error);
      over.abort();
      client.destroy();
    }
  }

  async #connect(signal: AbortSignal): Promise<TLSSocket> {
    const { address, dial, ca } = this.options;
    const { host, serverName } = address;
    const tcp = await dial(address, signal);
    tcp.setKeepAlive(true, KEEP_ALIVE_MS);
    const names = serverName !== undefined && { servername: serverName };
    const tls = connectTls({ socket: tcp, host, ca: Buffer.from(ca), ...names });
    tls.on('close', () => tcp.destroy());
    try {
      await once(tls, 'secureConnect', { signal });
      return tls;
    } catch (error) {
      tls.destroy();
      throw error;
    }
  }
}

/** Carries bytes both ways; what ends or breaks on one side does so on the other. */
function join(sdk: TLSSocket, gateway: TLSSocket, lingerMs: number): void {
  for (const [one, other] of [
    [sdk, gateway],
    [gateway, sdk],
  ] as const) {
    one.on('error', () => one.destroy());
    // What is on its way to the other side still gets there.
    one.once('close', () => other.destroySoon());
    one.pipe(other);
  }
  // A gateway that is gone without a word never closes, and dead connections would use up the relay's share.
  sdk.once('end', () => setTimeout(() => gateway.destroy(), lingerMs).unref());
}
