import type { Dial } from '../../lib/network/dial.ts';
import type { GatewayAddress } from './gateway-address.ts';
import { distrustKind, probeTls, type TlsAnswer } from './tls-probe.ts';

/** What certificates are verified with. */
export interface ProbeTrust {
  /** PEM of the CAs. */
  ca: string | Uint8Array;
  /** What to do when another CA has signed the certificate. */
  adviceOnCa: string;
}

/** Probes a gateway once; ends when the signal aborts. */
export type Probe = (signal: AbortSignal) => Promise<ProbeAnswer>;

export interface ProbeAnswer {
  /** Subject of the presented certificate, such as `CN=portal.hotel.example`; null when TLS failed before that. */
  certificate: string | null;
  /** IP address that was connected to: the gateway's, or the proxy's; null when it had closed again. */
  peer: string | null;
  /** Why an agent rejects the certificate, and what to do: clock, CA or name; null when it accepts it. */
  problem: string | null;
}

/**
 * Checks whether anything answers at an address: TCP connect, TLS handshake, close. A certificate that is not trusted is
 * an answer, too: nothing is sent, and the session that follows verifies it. The probe knows better what is wrong with it.
 *
 * @param dial the same way that sessions take
 * @param signal aborts the attempt
 * @returns as soon as the other side sent anything, even a TLS alert
 * @throws the system's error when nothing came back; an AbortError when the signal aborts first
 */
export async function probeGateway(
  address: GatewayAddress,
  dial: Dial,
  { ca, adviceOnCa }: ProbeTrust,
  signal: AbortSignal,
): Promise<ProbeAnswer> {
  const socket = await dial(address, signal);
  const peer = socket.remoteAddress ?? null;
  try {
    const answer = await probeTls(socket, address, { ca: Buffer.from(ca), signal });
    const problem = certificateProblem(answer, new Date(), adviceOnCa);
    return { certificate: answer.certificate?.subject ?? null, problem, peer };
  } finally {
    socket.destroy();
  }
}

function certificateProblem(answer: TlsAnswer, now: Date, adviceOnCa: string): string | null {
  const { certificate } = answer;
  if (certificate === null) return null;
  const kind = distrustKind(answer);
  if (kind === 'unknown CA') return `signed by ${certificate.issuer}, a CA that is not trusted here; ${adviceOnCa}`;
  const clock = clockProblem(certificate, now);
  if (clock !== null) return clock;
  return kind === 'other name' ? 'the certificate is for another name; check NGROK_SERVER_ADDR' : null;
}

function clockProblem({ validFrom, validTo }: { validFrom: Date; validTo: Date }, now: Date): string | null {
  const shown = `the clock of this machine shows ${now.toISOString().slice(0, 10)}`;
  if (now < validFrom) return `${shown}, before the certificate is valid (${validFrom.toISOString()}); set the clock`;
  if (now <= validTo) return null;
  return `${shown}, after the certificate expired (${validTo.toISOString()}); set the clock or renew the certificate`;
}
