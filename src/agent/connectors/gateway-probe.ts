import type { Dial } from '../../lib/network/dial.ts';
import type { GatewayAddress } from './gateway-address.ts';
import { probeTls } from './tls-probe.ts';

/** Probes a gateway once; ends when the signal aborts. */
export type Probe = (signal: AbortSignal) => Promise<ProbeAnswer>;

export interface ProbeAnswer {
  /** Subject of the presented certificate, such as `CN=portal.hotel.example`; null when TLS failed before that. */
  certificate: string | null;
  /** IP address that was connected to: the gateway's, or the proxy's; null when it had closed again. */
  peer: string | null;
}

/**
 * Checks whether anything answers at an address: TCP connect, TLS handshake, close. The certificate is not verified,
 * because nothing is sent; the session that follows verifies it.
 *
 * @param dial the same way that sessions take
 * @param signal aborts the attempt
 * @returns as soon as the other side sent anything, even a TLS alert
 * @throws the system's error when nothing came back; an AbortError when the signal aborts first
 */
export async function probeGateway(address: GatewayAddress, dial: Dial, signal: AbortSignal): Promise<ProbeAnswer> {
  const socket = await dial(address, signal);
  const peer = socket.remoteAddress ?? null;
  try {
    const { certificate } = await probeTls(socket, address, { signal });
    return { certificate: certificate?.subject ?? null, peer };
  } finally {
    socket.destroy();
  }
}
