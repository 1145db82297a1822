import { once } from 'node:events';
import type { LookupFunction } from 'node:net';
import net, { isIP, type Socket } from 'node:net';
import tls, { createSecureContext, type SecureContext } from 'node:tls';
import { systemCas } from '../../lib/network/tls-options.ts';
import { withDeadline } from '../../lib/time/deadline.ts';
import { isNamed, type TcpUpstream, type Upstream } from './upstream.ts';
import type { UpstreamGuard } from './upstream-guard.ts';

export interface ConnectionOptions {
  guard: UpstreamGuard;
  verifyTls: boolean;
  /** PEM of the CAs that verify https upstreams at an address or localhost; omitted: the operating system's. */
  upstreamCas?: () => string;
  connectMs: number;
  /** Whether an https upstream is to speak HTTP/2, rather than HTTP/1.1. */
  http2?: boolean;
}

/** After this, the upstream's next address is tried. Node's 250 ms are too little for a device that is busy. */
const ATTEMPT_MS = 2_000;
const KEEP_ALIVE_MS = 30_000;
/** Looking this name up would cost more than the connection. */
const LOCALHOST = ['127.0.0.1', '::1'];

let systemTrust: SecureContext | null = null;

/**
 * Connects to an upstream, which is checked as it resolves now. A name may resolve to another address each time (DNS
 * rebinding), so the look-up that is checked is the one that is connected to.
 *
 * @returns a half-open connection; it is paused, with TLS established where the upstream requires it
 * @throws {AgentError} 400 when it is not allowed; otherwise the system's error
 */
export async function connectUpstream(upstream: Upstream, options: ConnectionOptions): Promise<Socket> {
  const socket = upstream.kind === 'tcp' ? connectTcp(upstream, options) : await connectSocket(upstream.path, options);
  // The caller adds a listener of its own; until then, an error must not end the process.
  socket.on('error', () => {});
  const connected = once(socket, socket instanceof tls.TLSSocket ? 'secureConnect' : 'connect');
  try {
    await withDeadline(connected, 'connecting', options.connectMs);
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

async function connectSocket(path: string, { guard }: ConnectionOptions): Promise<Socket> {
  return net.connect({ path: await guard.resolveSocket(path), allowHalfOpen: true });
}

function connectTcp(upstream: TcpUpstream, options: ConnectionOptions): Socket {
  const { guard, verifyTls, upstreamCas = () => systemCas(null), http2 = false } = options;
  const { host, port, scheme } = upstream;
  if (!isNamed(upstream)) guard.checkLiteral(upstream);
  const lookup: LookupFunction = (_name, _options, done) => {
    if (host === 'localhost') {
      done(
        null,
        LOCALHOST.map((address) => ({ address, family: isIP(address) })),
      );
      return;
    }
    guard.resolve(upstream).then(
      (addresses) => done(null, addresses),
      (error: NodeJS.ErrnoException) => done(error, []),
    );
  };
  const target = {
    host,
    port,
    lookup,
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: ATTEMPT_MS,
    allowHalfOpen: true,
    noDelay: true,
  };
  if (scheme !== 'https') return net.connect({ ...target, keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_MS });
  if (verifyTls && !isNamed(upstream)) systemTrust ??= createSecureContext({ ca: upstreamCas() });
  return tls.connect({
    ...target,
    ...(isIP(host) === 0 && { servername: host }),
    ...(verifyTls && !isNamed(upstream) && systemTrust && { secureContext: systemTrust }),
    ALPNProtocols: [http2 ? 'h2' : 'http/1.1'],
    rejectUnauthorized: verifyTls,
  });
}
