import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import net, { type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import type { Log } from '../../lib/log/log.ts';
import type { ConnectionEnd, EndpointUpstream } from '../connectors/connector.ts';
import type { HalfClosedConnections } from './half-closed-connections.ts';

export interface RelayOptions {
  /** Folder of mode 0700 for the relay's socket. */
  socketFolder: string;
  log: Log;
}

/** More than the 512 streams that one session carries. */
const MAX_CONNECTIONS = 1024;
const LINGER_MS = 2_000;

/** A unix socket that forwards to one upstream, by a connection made and checked for each of its own. */
export class UpstreamRelay {
  readonly path: string;
  readonly #server: Server;
  readonly #clients = new Set<Socket>();

  constructor(
    private readonly upstream: Pick<EndpointUpstream, 'connect' | 'observeConnection'>,
    private readonly halfClosed: HalfClosedConnections,
    private readonly options: RelayOptions,
  ) {
    this.path = join(options.socketFolder, `${randomBytes(6).toString('hex')}.sock`);
    this.#server = net.createServer({ allowHalfOpen: true }, (client) => this.#serve(client));
    this.#server.maxConnections = MAX_CONNECTIONS;
  }

  /** @throws when the socket cannot be created */
  async listen(): Promise<void> {
    this.#server.listen(this.path);
    await once(this.#server, 'listening');
    this.#server.on('error', (err) => this.options.log.error({ err }, 'upstream relay cannot accept connections'));
  }

  /** Closes all connections and removes the socket. */
  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const client of this.#clients) client.destroy();
    await closed;
  }

  #serve(client: Socket): void {
    this.#clients.add(client);
    client.once('close', () => this.#clients.delete(client));
    // The SDK aborted: no answer is possible.
    client.on('error', () => client.destroy());
    // No data is lost meanwhile: the socket stays paused until it is read.
    this.upstream.connect().then(
      (server) => this.#pipe(client, server),
      (error: unknown) => this.#refuse(client, error),
    );
  }

  #pipe(client: Socket, server: Socket): void {
    server.on('error', () => server.destroy());
    server.once('close', () => endedInOrder(server) || client.destroy());
    client.once('close', () => endedInOrder(client) || server.destroy());
    if (client.destroyed) server.destroy();
    client.once('end', () => this.halfClosed.add(server));
    client.pipe(server).pipe(client);
    const traffic = this.upstream.observeConnection?.();
    if (!traffic) return;
    client.on('data', (bytes: Buffer) => traffic.fromClient(bytes));
    server.on('data', (bytes: Buffer) => traffic.toClient(bytes));
    let by: ConnectionEnd | null = null;
    server.once('end', () => (by ??= 'upstream'));
    server.once('error', () => (by ??= 'upstream'));
    for (const event of ['end', 'close']) client.once(event, () => (by ??= 'client'));
    server.once('close', () => traffic.closed(server.readableEnded, by ?? 'upstream'));
  }

  /** Reads what was sent, because closing before that would reset the connection. */
  #refuse(client: Socket, error: unknown): void {
    const traffic = this.upstream.observeConnection?.();
    client.on('data', (bytes: Buffer) => traffic?.fromClient(bytes));
    client.once('close', () => traffic?.failed(error));
    client.setTimeout(LINGER_MS, () => client.destroy());
    client.resume().end();
  }
}

/** Whether a socket closed in order, so that pending data of the other one is still delivered. */
function endedInOrder(socket: Socket): boolean {
  return socket.readableEnded && socket.writableFinished;
}
