import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import net, { type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { dialFailure } from '../../agent-protocol/dial-failure.ts';
import type { Log } from '../../lib/log/log.ts';
import {
  type ConnectionEnd,
  type EndpointUpstream,
  type TunnelProtocol,
  UpstreamFault,
} from '../connectors/connector.ts';

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
    private readonly protocol: TunnelProtocol,
    /** Called with the connection of a client that has ended its side, or whose upstream does not read what it sends. */
    private readonly onWaiting: (server: Socket, why: 'half closed' | 'blocked') => void,
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
    server.once('close', () => endedInOrder(server) || this.#finish(client));
    client.once('close', () => endedInOrder(client) || server.destroy());
    if (client.destroyed) server.destroy();
    client.once('end', () => this.onWaiting(server, 'half closed'));
    client.pipe(server).pipe(client);
    client.on('pause', () => this.onWaiting(server, 'blocked'));
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

  /**
   * Sends what the upstream has answered. Meanwhile, reads what it has not: the SDK (1.7.0) drops an answer when it cannot write
   * the rest of the upload.
   */
  #finish(client: Socket): void {
    if (client.destroyed) return;
    client.removeAllListeners('data').resume();
    client.end(() => {
      const timer = setTimeout(() => client.destroy(), LINGER_MS).unref();
      client.once('close', () => clearTimeout(timer));
    });
  }

  /**
   * Answers for the upstream where that is possible, as the SDK does for those that it connects to. Reads what was sent, because
   * closing before that would reset the connection.
   */
  #refuse(client: Socket, error: unknown): void {
    const traffic = this.upstream.observeConnection?.();
    client.on('data', (bytes: Buffer) => traffic?.fromClient(bytes));
    client.once('close', () => traffic?.failed(error));
    client.setTimeout(LINGER_MS, () => client.destroy());
    client.resume();
    if (this.protocol === 'http') client.end(dialFailure(error instanceof UpstreamFault ? error.summary : null));
    else client.end();
  }
}

/** Whether a socket closed in order, so that pending data of the other one is still delivered. */
function endedInOrder(socket: Socket): boolean {
  return socket.readableEnded && socket.writableFinished;
}

const SWEEP_MS = 1000;
/** Milliseconds without a byte after which an upstream is not waited for. */
const PATIENCE_MS = 5 * 60_000;
/** The same for those beyond this number: they take places that other clients need. */
const MAX_WAITING = 64;
const CROWDED_MS = 1000;
/** The same for those whose client has not ended its side: it may well be there. */
const CROWDED_BLOCKED_MS = 10_000;

interface Waiting {
  server: Socket;
  onGivenUp: () => void;
  /** Milliseconds of patience when there are many; more while nothing says that the client has left. */
  crowdedMs: number;
  /** Bytes that have passed, and when the last ones did. */
  moved: number;
  movedAt: number;
}

/**
 * The connections of all relays whose client has ended its side, or whose upstream does not read what the client sends: the end
 * comes after that. It destroys those whose upstream neither ends its own side nor sends or reads anything. The SDK cannot tell
 * its agent whether such a client has left or waits, and keeps a place of the session for it as long as the upstream likes.
 */
export class HalfClosedConnections {
  readonly #waiting = new Map<Socket, Waiting>();
  #timer: NodeJS.Timeout | null = null;

  constructor(private readonly now: () => number = () => performance.now()) {}

  /**
   * The client of this connection to an upstream has ended its side.
   *
   * @param onGivenUp called when the upstream has been silent for too long
   */
  add(server: Socket, onGivenUp: () => void): void {
    this.#add(server, onGivenUp, CROWDED_MS);
  }

  /** This upstream does not read as fast as its client sends; perhaps it never will. */
  addBlocked(server: Socket, onGivenUp: () => void): void {
    if (!this.#waiting.has(server)) this.#add(server, onGivenUp, CROWDED_BLOCKED_MS);
  }

  #add(server: Socket, onGivenUp: () => void, crowdedMs: number): void {
    if (server.destroyed) return;
    this.#waiting.set(server, { server, onGivenUp, crowdedMs, moved: movedOf(server), movedAt: this.now() });
    this.#timer ??= setInterval(() => this.sweep(), SWEEP_MS).unref();
  }

  /** Destroys those that have been silent for too long; called every second. */
  sweep(): void {
    const now = this.now();
    for (const one of this.#waiting.values()) {
      const moved = movedOf(one.server);
      if (moved !== one.moved) Object.assign(one, { moved, movedAt: now });
      const isRead = one.crowdedMs === CROWDED_BLOCKED_MS && one.server.writableLength === 0;
      if (one.server.destroyed || isRead) this.#waiting.delete(one.server);
    }
    const longest = [...this.#waiting.values()].sort((a, b) => a.movedAt - b.movedAt);
    for (const { server, movedAt, crowdedMs, onGivenUp } of longest) {
      if (now - movedAt < (this.#waiting.size > MAX_WAITING ? crowdedMs : PATIENCE_MS)) continue;
      this.#waiting.delete(server);
      server.destroy();
      onGivenUp();
    }
    if (this.#waiting.size > 0 || this.#timer === null) return;
    clearInterval(this.#timer);
    this.#timer = null;
  }
}

/** Bytes received, and sent as far as the upstream reads. */
function movedOf(server: Socket): number {
  return server.bytesRead + server.bytesWritten - server.writableLength;
}
