import { once } from 'node:events';
import { isIP, type Socket } from 'node:net';
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls';
import { messageOf } from '../../lib/errors.ts';
import type { Dial } from '../../lib/network/dial.ts';
import { namedServer } from '../../lib/tls/pinned-chain.ts';
import { checkServerIdentity } from '../../lib/tls/tls-options.ts';
import { isOfUnknownCa } from '../../lib/tls/tls-probe.ts';
import { connectInTime, secureAt, type TrustedTime } from '../../lib/tls/trusted-time.ts';

export interface GatewaySocketOptions {
  address: GatewayAddress;
  dial: Dial;
  /** PEM of the CAs that verify the gateway. */
  ca: string | Uint8Array;
  /** See `pinnedProtocols`; left out: none. */
  protocols?: string[];
  /** Proves the time when this machine's clock is wrong; null or omitted: not supported. */
  time?: TrustedTime | null | undefined;
  /** TLS session of an earlier connection to the same gateway, to be resumed. */
  tlsSession?: Buffer | null;
  onTlsSession?(session: Buffer): void;
  /** Data is expensive: no keys of the hybrid with ML-KEM, 1.2 kB each way, and no probes of TCP between heartbeats. */
  isMetered?: boolean;
}

const KEEP_ALIVE_MS = 30_000;
const METERED_KEEP_ALIVE_MS = 120_000;
/** A short handshake: what gateways have, suites with the shorter hash, and the keys of usual certificates. */
const METERED_TLS = {
  minVersion: 'TLSv1.3',
  ecdhCurve: 'X25519:P-256:P-384',
  ciphers: 'TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256',
  sigalgs:
    'ecdsa_secp256r1_sha256:ecdsa_secp384r1_sha384:ed25519:rsa_pss_rsae_sha256:rsa_pss_rsae_sha384:rsa_pkcs1_sha256:rsa_pkcs1_sha384',
} satisfies ConnectionOptions;

/**
 * Connects to a gateway, and verifies its certificate: by this machine's clock, or else at the time that the gateway proves.
 *
 * @returns a connection on which nothing has been sent
 * @throws the dial's error, the signal's reason, or Error `tls handshake error: …`
 */
export async function connectToGateway(options: GatewaySocketOptions, signal: AbortSignal): Promise<TLSSocket> {
  const { address, time } = options;
  const dialled = () => options.dial(address, signal);
  const usual = async () => {
    try {
      return await secureGateway(await dialled(), options, signal);
    } catch (error) {
      if (asksAtOnce(options) || !isOfUnknownCa(error)) throw error;
      const socket = await secure(await dialled(), options, signal, options.protocols);
      answering.add(address);
      return socket;
    }
  };
  return connectInTime(time, signal, usual, async (proved) => {
    const tcp = await dialled();
    keepAlive(tcp, options);
    return secured(() => secureAt(proved, tcp, address, signal), tcp, signal);
  });
}

/** Of routes without a server name: the gateway there has shown such a chain when it was asked, and another one when it was not. */
const answering = new WeakSet<GatewayAddress>();

/**
 * Whether the gateway is asked at once for a chain that the pinned CAs accept. By its address alone, earlier gateways take those who
 * ask for clients, not for agents: they are asked only when they show another chain, which ends the connection anyway.
 */
function asksAtOnce({ address, protocols = [] }: Pick<GatewaySocketOptions, 'address' | 'protocols'>): boolean {
  return address.serverName !== undefined || protocols.length === 0 || answering.has(address);
}

type SecureOptions = Omit<GatewaySocketOptions, 'dial' | 'time'>;

/** Does the usual TLS handshake on a connection to a gateway. @throws as {@link connectToGateway} */
export function secureGateway(tcp: Socket, options: SecureOptions, signal: AbortSignal): Promise<TLSSocket> {
  return secure(tcp, options, signal, asksAtOnce(options) ? options.protocols : []);
}

async function secure(
  tcp: Socket,
  options: SecureOptions,
  signal: AbortSignal,
  asked: string[] = [],
): Promise<TLSSocket> {
  const { address, ca, tlsSession, onTlsSession, isMetered = false } = options;
  const { host, serverName } = address;
  keepAlive(tcp, options);
  const tls = connect({
    socket: tcp,
    host,
    checkServerIdentity,
    ca: Buffer.from(ca),
    ...namedServer(serverName, asked),
    ...(tlsSession && { session: tlsSession }),
    ...(isMetered && METERED_TLS),
  });
  if (onTlsSession) tls.on('session', onTlsSession);
  tls.on('close', () => tcp.destroy());
  return secured(() => once(tls, 'secureConnect', { signal }).then(() => tls), tls, signal);
}

function keepAlive(tcp: Socket, { isMetered = false }: Pick<GatewaySocketOptions, 'isMetered'>): void {
  tcp.setNoDelay(true);
  tcp.setKeepAlive(true, isMetered ? METERED_KEEP_ALIVE_MS : KEEP_ALIVE_MS);
}

async function secured(work: () => Promise<TLSSocket>, socket: Socket, signal: AbortSignal): Promise<TLSSocket> {
  try {
    return await work();
  } catch (error) {
    socket.destroy();
    signal.throwIfAborted();
    throw new HandshakeFailed(`tls handshake error: ${messageOf(error)}`, { cause: error });
  }
}

/** The other side answers, but not as the gateway. */
export class HandshakeFailed extends Error {}

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
