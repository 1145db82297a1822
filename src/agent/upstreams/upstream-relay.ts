import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { LookupFunction } from 'node:net';
import net, { isIP, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import tls from 'node:tls';
import type { Log } from '../../lib/log/log.ts';
import { AgentError } from '../errors/agent-error.ts';
import { displayUpstream, type TcpUpstream, type Upstream } from './upstream.ts';
import type { UpstreamGuard } from './upstream-guard.ts';

export interface RelayOptions {
  guard: UpstreamGuard;
  log: Log;
  /** Folder of mode 0700 for the relay's socket. */
  socketFolder: string;
  verifyTls: boolean;
  /** Deadline for connecting, TLS included. */
  connectMs: number;
}

/** More than the 512 streams that one session carries. */
const MAX_CONNECTIONS = 1024;
const KEEP_ALIVE_MS = 30_000;
const LINGER_MS = 2_000;

/**
 * A unix socket that forwards to one upstream and checks it for every connection. A name may resolve to another address
 * each time (DNS rebinding), so the look-up that is checked must be the one that is connected to.
 */
export class UpstreamRelay {
  readonly path: string;
  readonly #server: Server;
  readonly #clients = new Set<Socket>();
  /** Warns once per tunnel: the operator does not always control what a name resolves to. */
  #warned = false;

  constructor(
    private readonly upstream: Upstream,
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
    if (this.upstream.kind === 'tcp') this.#pipe(client, this.#connectTcp(this.upstream));
    else this.#pipeToSocket(client, this.upstream.path);
  }

  #pipeToSocket(client: Socket, path: string): void {
    // No data is lost meanwhile: the socket stays paused until it is read.
    this.options.guard.resolveSocket(path).then(
      (real) => client.destroyed || this.#pipe(client, net.connect({ path: real, allowHalfOpen: true })),
      (error: unknown) => this.#refuse(client, error),
    );
  }

  #connectTcp(upstream: TcpUpstream): Socket {
    const { host, port, scheme } = upstream;
    const lookup: LookupFunction = (_name, _options, done) => {
      this.options.guard.resolve(upstream).then(
        (addresses) => done(null, addresses),
        (error: NodeJS.ErrnoException) => done(error, []),
      );
    };
    const target = { host, port, lookup, autoSelectFamily: true, allowHalfOpen: true, noDelay: true };
    if (scheme !== 'https') return net.connect({ ...target, keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_MS });
    return tls.connect({
      ...target,
      ...(isIP(host) === 0 && { servername: host }),
      ALPNProtocols: ['http/1.1'],
      rejectUnauthorized: this.options.verifyTls,
    });
  }

  #pipe(client: Socket, server: Socket): void {
    const { connectMs } = this.options;
    const late = setTimeout(() => server.destroy(new Error(`no connection within ${connectMs / 1000} s`)), connectMs);
    let connected = false;
    server.once(server instanceof tls.TLSSocket ? 'secureConnect' : 'connect', () => {
      clearTimeout(late);
      connected = true;
    });
    server.on('error', (error) => connected || this.#refuse(client, error));
    server.once('close', () => {
      clearTimeout(late);
      if (connected && !endedInOrder(server)) client.destroy();
    });
    client.once('close', () => endedInOrder(client) || server.destroy());
    client.pipe(server).pipe(client);
  }

  #refuse(client: Socket, error: unknown): void {
    this.#logFailure(error);
    // Reads what was sent, because closing before that would reset the connection.
    client.setTimeout(LINGER_MS, () => client.destroy());
    client.resume().end();
  }

  /** An unreachable upstream may just be switched off, but one that is not allowed needs the operator. */
  #logFailure(error: unknown): void {
    const { log } = this.options;
    const upstream = displayUpstream(this.upstream);
    log.debug({ err: error, upstream }, 'upstream connection failed');
    const notAllowed = error instanceof AgentError && error.code === 'ERR_AGENT_UPSTREAM_NOT_ALLOWED';
    if (!notAllowed || this.#warned) return;
    this.#warned = true;
    log.warn({ upstream, reason: error.message }, 'upstream not allowed; connection rejected');
  }
}

/** Whether a socket closed in order, so that pending data of the other one is still delivered. */
function endedInOrder(socket: Socket): boolean {
  return socket.readableEnded && socket.writableFinished;
}
