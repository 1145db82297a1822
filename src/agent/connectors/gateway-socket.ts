import { once } from 'node:events';
import { connect, type TLSSocket } from 'node:tls';
import { messageOf } from '../../lib/errors.ts';
import type { Dial } from '../../lib/network/dial.ts';
import { checkServerIdentity } from '../../lib/network/server-identity.ts';
import type { GatewayAddress } from './gateway-address.ts';

export interface GatewaySocketOptions {
  address: GatewayAddress;
  dial: Dial;
  /** PEM of the CAs that verify the gateway. */
  ca: string | Uint8Array;
  /** TLS session of an earlier connection to the same gateway, to be resumed. */
  tlsSession?: Buffer | null;
  /** Receives TLS sessions for later connections. */
  onTlsSession?(session: Buffer): void;
}

const KEEP_ALIVE_MS = 30_000;

/**
 * Connects to a gateway, and verifies its certificate.
 *
 * @returns a connection on which nothing has been sent
 * @throws the dial's error, the signal's reason, or Error `tls handshake error: …`
 */
export async function connectToGateway(options: GatewaySocketOptions, signal: AbortSignal): Promise<TLSSocket> {
  const { address, dial, ca, tlsSession, onTlsSession } = options;
  const { host, serverName } = address;
  const tcp = await dial(address, signal);
  tcp.setNoDelay(true);
  tcp.setKeepAlive(true, KEEP_ALIVE_MS);
  const tls = connect({
    socket: tcp,
    host,
    checkServerIdentity,
    ca: Buffer.from(ca),
    ...(serverName !== undefined && { servername: serverName }),
    ...(tlsSession && { session: tlsSession }),
  });
  if (onTlsSession) tls.on('session', onTlsSession);
  tls.on('close', () => tcp.destroy());
  try {
    await once(tls, 'secureConnect', { signal });
    return tls;
  } catch (error) {
    tls.destroy();
    signal.throwIfAborted();
    throw new Error(`tls handshake error: ${messageOf(error)}`, { cause: error });
  }
}
