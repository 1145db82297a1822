import { once } from 'node:events';
import { isIP, type Socket } from 'node:net';
import { connect, type TLSSocket } from 'node:tls';
import { messageOf } from '../../lib/errors.ts';
import type { Dial } from '../../lib/network/dial.ts';
import { checkServerIdentity } from '../../lib/network/tls-options.ts';
import { connectInTime, secureAt, type TrustedTime } from '../../lib/network/trusted-time.ts';

export interface GatewaySocketOptions {
  address: GatewayAddress;
  dial: Dial;
  /** PEM of the CAs that verify the gateway. */
  ca: string | Uint8Array;
  /** Who is asked for the time when this machine's clock is wrong; null, or left out: nobody. */
  time?: TrustedTime | null | undefined;
  /** TLS session of an earlier connection to the same gateway, to be resumed. */
  tlsSession?: Buffer | null;
  onTlsSession?(session: Buffer): void;
}

const KEEP_ALIVE_MS = 30_000;

/**
 * Connects to a gateway, and verifies its certificate: by this machine's clock, or else at the time that the gateway proves.
 *
 * @returns a connection on which nothing has been sent
 * @throws the dial's error, the signal's reason, or Error `tls handshake error: …`
 */
export async function connectToGateway(options: GatewaySocketOptions, signal: AbortSignal): Promise<TLSSocket> {
  const { address, ca, tlsSession, onTlsSession, time } = options;
  const { host, serverName } = address;
  const usual = async () => {
    const socket = await dialled(options, signal);
    const tls = connect({
      socket,
      host,
      checkServerIdentity,
      ca: Buffer.from(ca),
      ...(serverName !== undefined && { servername: serverName }),
      ...(tlsSession && { session: tlsSession }),
    });
    if (onTlsSession) tls.on('session', onTlsSession);
    tls.on('close', () => socket.destroy());
    return secured(() => once(tls, 'secureConnect', { signal }).then(() => tls), tls, signal);
  };
  return connectInTime(time, signal, usual, async (proved) => {
    const socket = await dialled(options, signal);
    return secured(() => secureAt(proved, socket, address, signal), socket, signal);
  });
}

async function dialled({ dial, address }: GatewaySocketOptions, signal: AbortSignal): Promise<Socket> {
  const tcp = await dial(address, signal);
  tcp.setNoDelay(true);
  tcp.setKeepAlive(true, KEEP_ALIVE_MS);
  return tcp;
}

async function secured(work: () => Promise<TLSSocket>, socket: Socket, signal: AbortSignal): Promise<TLSSocket> {
  try {
    return await work();
  } catch (error) {
    socket.destroy();
    signal.throwIfAborted();
    throw new Error(`tls handshake error: ${messageOf(error)}`, { cause: error });
  }
}

/** Address for agent sessions in ngrok's cloud. */
export const CLOUD_ADDRESS = 'connect.ngrok-agent.com:443';

export interface GatewayAddress {
  /** A name or an address; IPv6 without brackets. */
  host: string;
  port: number;
  /** Server name for TLS (SNI); undefined for an IP address, which SNI does not support. */
  serverName: string | undefined;
}

/** Parses `host[:port]`; the default port is 443, and IPv6 addresses need brackets. */
export function parseGatewayAddress(address: string): GatewayAddress {
  const [, bracketed, plain = address, port = '443'] = /^(?:\[([^\]]+)\]|(.*?))(?::(\d+))?$/.exec(address) ?? [];
  const host = bracketed ?? plain;
  return { host, port: Number(port), serverName: isIP(host) ? undefined : host };
}
