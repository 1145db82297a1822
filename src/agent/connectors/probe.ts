import type { Dial } from '../../lib/dial.ts';
import type { GatewayAddress } from './gateway-address.ts';
import { greet } from './tls-greeting.ts';

/** What somebody at the gateway's address answered. */
export interface ProbeAnswer {
  /** Who the presented certificate says it is, such as `CN=portal.hotel.example`; null when TLS got no further. */
  certificate: string | null;
}

/**
 * Finds out whether anybody answers at an address: TCP connect, TLS handshake, and closed again. Whom the certificate
 * names does not matter here, as nothing is sent and nobody trusted; the session that follows verifies it.
 *
 * @param dial the way that the session takes as well
 * @param signal ends the attempt
 * @returns as soon as the other side sent anything, even a refusal of TLS
 * @throws the system's error when nothing came back; an AbortError when the signal came first
 */
export async function probeGateway(address: GatewayAddress, dial: Dial, signal: AbortSignal): Promise<ProbeAnswer> {
  const socket = await dial(address, signal);
  try {
    const { certificate } = await greet(socket, address, { signal });
    return { certificate: certificate?.subject ?? null };
  } finally {
    socket.destroy();
  }
}
