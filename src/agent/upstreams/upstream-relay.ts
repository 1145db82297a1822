import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { LookupFunction } from 'node:net';
import net, { type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import tls from 'node:tls';
import type { Log } from '../../lib/log.ts';
import { AgentError } from '../errors/agent-error.ts';
import { displayUpstream, type TcpUpstream, type Upstream } from './upstream.ts';
import type { UpstreamGuard } from './upstream-guard.ts';

export interface RelayOptions {
  guard: UpstreamGuard;
  log: Log;
  /** Folder of mode 0700 for the relay's socket. */
  socketFolder: string;
  /** Whether the certificate of an https upstream has to be valid. */
  verifyTls: boolean;
  /** Milliseconds until a connection, TLS included, has to stand. */
  connectMs: number;
}

/** More than the 512 streams that one session carries. */
const MAX_CONNECTIONS = 1024;
const KEEP_ALIVE_MS = 30_000;
const LINGER_MS = 2_000;

/**
 * A unix socket that leads to one upstream, for upstreams that have to be looked at anew for every
 * connection: a name may point elsewhere by now (DNS rebinding), so what is checked and what is
 * connected to has to be the same look-up.
 */
export class UpstreamRelay {
  readonly path: string;
  readonly #server: Server;
  readonly #clients = new Set<Socket>();
  /** Once is enough: where a name leads is not always in the operator's hands. */
  #refusalTold = false;

  constructor(
    private readonly upstream: Upstream,
    private readonly options: RelayOptions,
  ) {
    this.path = join(options.socketFolder, `${randomBytes(6).toString('hex')}.sock`);
    this.#server = net.createServer({ allowHalfOpen: true }, (client) => this.#serve(client));
    this.#server.maxConnections = MAX_CONNECTIONS;
  }

  /** @throws when the socket cannot be made */
  async listen(): Promise<void> {
    this.#server.listen(this.path);
    await once(this.#server, 'listening');
    this.#server.on('error', (err) => this.options.log.error({ err }, 'upstream relay cannot accept connections'));
  }

  /** Ends every connection and removes the socket. */
  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const client of this.#clients) client.destroy();
    await closed;
  }

  #serve(client: Socket): void {
    this.#clients.add(client);
    client.once('close', () => this.#clients.delete(client));
    // The SDK broke off: that ends the connection, and there is nobody to tell.
    client.on('error', () => client.destroy());
    if (this.upstream.kind === 'tcp') this.#join(client, this.#connectTcp(this.upstream));
    else this.#joinSocket(client, this.upstream.path);
  }

  #joinSocket(client: Socket, path: string): void {
    // Nothing is lost meanwhile: a socket that nobody reads from stays paused.
    this.options.guard.resolveSocket(path).then(
      (real) => client.destroyed || this.#join(client, net.connect({ path: real, allowHalfOpen: true })),
      (error: unknown) => this.#giveUp(client, error),
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
      servername: host,
      ALPNProtocols: ['http/1.1'],
      rejectUnauthorized: this.options.verifyTls,
    });
  }

  #join(client: Socket, server: Socket): void {
    const { connectMs } = this.options;
    const late = setTimeout(() => server.destroy(new Error(`no connection within ${connectMs / 1000} s`)), connectMs);
    let connected = false;
    server.once(server instanceof tls.TLSSocket ? 'secureConnect' : 'connect', () => {
      clearTimeout(late);
      connected = true;
    });
    server.on('error', (error) => connected || this.#giveUp(client, error));
    server.once('close', () => {
      clearTimeout(late);
      if (connected && !endedInOrder(server)) client.destroy();
    });
    client.once('close', () => endedInOrder(client) || server.destroy());
    client.pipe(server).pipe(client);
  }

  #giveUp(client: Socket, error: unknown): void {
    this.#tell(error);
    // What was sent is read first: closing on top of it would be a reset, not an end.
    client.setTimeout(LINGER_MS, () => client.destroy());
    client.resume().end();
  }

  /** Whom visitors cannot reach may be switched off; what is not allowed stays so until somebody who reads this acts. */
  #tell(error: unknown): void {
    const { log } = this.options;
    const upstream = displayUpstream(this.upstream);
    log.debug({ err: error, upstream }, 'upstream connection failed');
    const isRefused = error instanceof AgentError && error.code === 'ERR_AGENT_UPSTREAM_NOT_ALLOWED';
    if (!isRefused || this.#refusalTold) return;
    this.#refusalTold = true;
    log.warn({ upstream, reason: error.message }, 'upstream not allowed; connection rejected');
  }
}

/** Whether a closed socket had its say; then what is still on its way in the other one is delivered first. */
function endedInOrder(socket: Socket): boolean {
  return socket.readableEnded && socket.writableFinished;
}
