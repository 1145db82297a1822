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
  /** What this machine's clock has to do with it: null when the clock shows a time at which the certificate is valid. */
  clock: string | null;
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
    const clock = certificate && clockProblem(certificate, new Date());
    return { certificate: certificate?.subject ?? null, clock, peer };
  } finally {
    socket.destroy();
  }
}

function clockProblem({ validFrom, validTo }: { validFrom: Date; validTo: Date }, now: Date): string | null {
  const shown = `the clock of this machine shows ${now.toISOString().slice(0, 10)}`;
  if (now < validFrom) return `${shown}, before the certificate is valid (${validFrom.toISOString()}); set the clock`;
  if (now <= validTo) return null;
  return `${shown}, after the certificate expired (${validTo.toISOString()}); set the clock or renew the certificate`;
}
