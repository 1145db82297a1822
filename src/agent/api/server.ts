import { once } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';
import { chmod, rm } from 'node:fs/promises';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { ApiError, hasErrno, messageOf, OperatorError } from '../../lib/errors.ts';
import { answerProtocolErrors, inTurn, trackIdleConnections } from '../../lib/http/http-server.ts';
import type { Log } from '../../lib/log/log.ts';
import { hostPort } from '../../lib/network/ip-address.ts';

/** Where to listen: a port (0: any free one), or a unix socket in a folder of mode 0700. */
export type Listen = { host: string; port: number } | { path: string };

export interface RunningServer {
  /** `host:port` as chosen, or the path of the socket. */
  readonly address: string;
  /** The port; null for a unix socket. */
  readonly port: number | null;
  /** Accepts no more requests; resolves when pending ones are answered, or aborted after the grace time. */
  close(graceMs: number): Promise<void>;
}

export interface ServerLimits {
  /** From the first byte of a request to the end of its headers, and to the end of its body. */
  headersMs: number;
  requestMs: number;
  idleMs: number;
  checkMs: number;
  connections: number;
}

const LIMITS: ServerLimits = {
  headersMs: 10_000,
  requestMs: 30_000,
  idleMs: 30_000,
  checkMs: 5_000,
  connections: 1_024,
};

/**
 * Serves an app over HTTP.
 *
 * @throws {OperatorError} when the address cannot be listened on
 */
export async function startServer(
  app: RequestListener,
  listen: Listen,
  log: Log,
  { headersMs, requestMs, idleMs, checkMs, connections }: ServerLimits = LIMITS,
): Promise<RunningServer> {
  // The app refuses requests without a Host header: Node would answer them without a body.
  const server = createServer({
    connectionsCheckingInterval: checkMs,
    keepAliveTimeout: idleMs,
    requireHostHeader: false,
  });
  server.on('request', inTurn(app));
  server.headersTimeout = headersMs;
  server.requestTimeout = requestMs;
  server.maxConnections = connections;
  answerProtocolErrors(server, (status, message) => new ApiError(status, 'ERR_AGENT_INVALID_REQUEST', message));
  const closeIdle = trackIdleConnections(server);
  try {
    if ('path' in listen) {
      await rm(listen.path, { force: true });
      server.listen(listen.path);
    } else {
      server.listen(listen.port, listen.host);
    }
    await once(server, 'listening');
    if ('path' in listen) await chmod(listen.path, 0o600);
  } catch (error) {
    server.close();
    throw explain(listen, error);
  }
  server.on('error', (err) => log.error({ err }, 'API cannot accept connections'));
  return { ...addressOf(server), close: (graceMs) => close(server, closeIdle, graceMs) };
}

async function close(server: Server, closeIdle: () => void, graceMs: number): Promise<void> {
  const closed = once(server, 'close');
  server.close();
  closeIdle();
  const grace = new AbortController();
  await Promise.race([closed, delay(graceMs, undefined, { signal: grace.signal })]);
  grace.abort();
  server.closeAllConnections();
  await closed;
}

function addressOf(server: Server): Pick<RunningServer, 'address' | 'port'> {
  const bound = server.address() as AddressInfo | string;
  if (typeof bound === 'string') return { address: bound, port: null };
  return { address: hostPort(bound.address, bound.port), port: bound.port };
}

function explain(listen: Listen, error: unknown): OperatorError {
  const isSocket = 'path' in listen;
  const where = isSocket ? listen.path : `${listen.host}:${listen.port}`;
  let advice = 'set AGENT_HOST and AGENT_PORT to an address this user may listen on';
  if (isSocket) advice = 'set TMPDIR to a folder in which this user can create sockets';
  else if (hasErrno(error, 'EADDRINUSE')) {
    advice = 'stop the other program or set AGENT_PORT to another port (0: any free port)';
  }
  return new OperatorError(`API cannot listen on ${where}: ${messageOf(error)}; ${advice}`, 1, { cause: error });
}

/** What Docker and Podman put into their containers. */
const MARKS = ['.dockerenv', 'run/.containerenv'];

/**
 * Whether this process runs in a container with a network of its own. Other machines reach it through published ports only,
 * and the container does not know where these are.
 */
export function hasContainerNetwork(root = '/'): boolean {
  return MARKS.some((mark) => existsSync(join(root, mark))) && !hasNetworkCard(join(root, 'sys/class/net'));
}

/** Virtual interfaces have no device. With the network of the host, a container sees its cards. */
function hasNetworkCard(folder: string): boolean {
  try {
    return readdirSync(folder).some((name) => existsSync(join(folder, name, 'device')));
  } catch {
    return true; // unknown
  }
}
