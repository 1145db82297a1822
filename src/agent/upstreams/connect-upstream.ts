import { once } from 'node:events';
import type { LookupFunction, TcpNetConnectOpts } from 'node:net';
import net, { type Socket } from 'node:net';
import { isNamed, type TcpUpstream, type Upstream } from '../../lib/network/upstream-address.ts';
import { withDeadline } from '../../lib/time/deadline.ts';
import { systemCas } from '../../lib/tls/tls-options.ts';
import type { UpstreamTls } from '../connectors/connector.ts';
import { deliverBeforeError } from './deliver-before-error.ts';
import type { UpstreamGuard } from './upstream-guard.ts';
import { connectTls } from './upstream-tls.ts';

export interface ConnectionOptions {
  guard: UpstreamGuard;
  /** Whether https upstreams are verified where `tls` does not say it. */
  verifyTls: boolean;
  /** What the tunnel says of an https upstream, see `tlsOf`. */
  tls?: UpstreamTls;
  /** PEM of the CAs that verify https upstreams at an address or localhost; omitted: the operating system's. */
  upstreamCas?: () => string;
  connectMs: number;
  /** Whether an https upstream is to speak HTTP/2, rather than HTTP/1.1. */
  http2?: boolean;
}

/** After this, the upstream's next address is tried. Node's 250 ms are too little for a device that is busy. */
const ATTEMPT_MS = 2_000;
const KEEP_ALIVE_MS = 30_000;

/**
 * Connects to an upstream, which is checked as it resolves now. A name may resolve to another address each time (DNS
 * rebinding), so the look-up that is checked is the one that is connected to.
 *
 * @returns a half-open connection; it is paused, with TLS established where the upstream requires it
 * @throws {AgentError} 400 when it is not allowed, {@link UpstreamFault} when TLS fails; otherwise the system's error
 */
export async function connectUpstream(upstream: Upstream, options: ConnectionOptions): Promise<Socket> {
  if (upstream.kind === 'tcp' && upstream.scheme === 'https') return connectHttps(upstream, options);
  const socket =
    upstream.kind === 'tcp'
      ? net.connect({ ...connectionTo(upstream, options), keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_MS })
      : await connectSocket(upstream.path, options);
  // The caller adds a listener of its own; until then, an error must not end the process.
  socket.on('error', () => {});
  try {
    await withDeadline(once(socket, 'connect'), 'connecting', options.connectMs);
    deliverBeforeError(socket);
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

async function connectSocket(path: string, { guard }: ConnectionOptions): Promise<Socket> {
  return net.connect({ path: await guard.resolveSocket(path), allowHalfOpen: true });
}

async function connectHttps(upstream: TcpUpstream, options: ConnectionOptions): Promise<Socket> {
  const { verifyTls, upstreamCas = () => systemCas(null), http2 = false, tls = {}, connectMs } = options;
  const socket = await connectTls({
    upstream,
    connection: connectionTo(upstream, options),
    options: tls,
    verifyByDefault: verifyTls,
    upstreamCas,
    protocol: http2 ? 'h2' : 'http/1.1',
    connectMs,
  });
  deliverBeforeError(socket);
  return socket;
}

function connectionTo(upstream: TcpUpstream, { guard }: ConnectionOptions): TcpNetConnectOpts {
  const { host, port } = upstream;
  if (!isNamed(upstream)) guard.checkLiteral(upstream);
  const lookup: LookupFunction = (_name, _options, done) => {
    const resolved =
      host === 'localhost' ? guard.localhost().then(({ addresses }) => addresses) : guard.resolve(upstream);
    resolved.then(
      (addresses) => done(null, addresses),
      (error: NodeJS.ErrnoException) => done(error, []),
    );
  };
  return {
    host,
    port,
    lookup,
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: ATTEMPT_MS,
    allowHalfOpen: true,
    noDelay: true,
  };
}
