import type { Dial } from '../../lib/network/dial.ts';
import { type Clock, systemClock } from '../../lib/time/clock.ts';
import { DeadlineExceeded, withOwnSignal, withSignal } from '../../lib/time/deadline.ts';
import { distrustKind, PORTAL_ADVICE, probeTls, SILENCE_ADVICE, type TlsAnswer } from '../../lib/tls/tls-probe.ts';
import { isDateCode } from '../../lib/tls/trusted-time.ts';
import type { GatewayAddress } from './gateway-socket.ts';

/** Below the deadline of a probe, so that it ends with this reason. */
const SILENT_MS = 12_000;
const OTHERWISE = 'otherwise check NGROK_SERVER_ADDR';

export interface ProbeTrust {
  ca: string | Uint8Array;
  /** See `pinnedProtocols`; left out: none. */
  protocols?: string[];
  /** What to do when another CA has signed the certificate. */
  adviceOnCa: string;
  onConnected?: (() => void) | undefined;
}

/** Probes a gateway once; ends when the signal aborts. Calls `onConnected` when it is connected, and waits for an answer. */
export type GatewayProbe = (signal: AbortSignal, onConnected?: () => void) => Promise<ProbeAnswer>;

export interface ProbeAnswer {
  /** Subject of the presented certificate, such as `CN=portal.hotel.example`; null when TLS failed before that. */
  certificate: string | null;
  /** IP address that was connected to: the gateway's, or the proxy's; null when it had closed again. */
  peer: string | null;
  /** Whether the certificate's dates do not fit this machine's clock; left out: they do. */
  isOutOfTime?: boolean;
  /** Whether another CA has signed the certificate; left out: no. */
  isOfOtherCa?: boolean;
  /** Why the answer is not trusted, and what to do: captive portal, clock, CA or name; null when it is. */
  problem: string | null;
}

/** The same probe, but an answer with a problem fails it. */
export function trustedOnly(probe: GatewayProbe): GatewayProbe {
  return async (signal, onConnected) => {
    const answer = await probe(signal, onConnected);
    if (answer.problem !== null) throw new Error(answer.problem);
    return answer;
  };
}

/**
 * Checks whether anything answers at an address: TCP connect, TLS handshake, close. A certificate that is not trusted is
 * an answer, too: nothing is sent, and the session that follows verifies it. The probe knows better what is wrong with it.
 *
 * @param dial the same way that sessions take
 * @returns as soon as the other side sent anything, even a TLS alert
 * @throws the system's error when nothing came back; an AbortError when the signal aborts first
 */
export async function probeGateway(
  address: GatewayAddress,
  dial: Dial,
  { ca, protocols, adviceOnCa, onConnected }: ProbeTrust,
  signal: AbortSignal,
  clock: Clock = systemClock,
): Promise<ProbeAnswer> {
  const socket = await dial(address, signal);
  onConnected?.();
  const peer = socket.remoteAddress ?? null;
  const handshake = (own: AbortSignal) =>
    probeTls(socket, address, { ca: Buffer.from(ca), ...(protocols && { protocols }), signal: own });
  try {
    const answer = await orSilent(handshake, signal, clock);
    const problem = certificateProblem(answer, new Date(), adviceOnCa);
    const isOutOfTime = isDateCode(answer.distrust);
    const isOfOtherCa = distrustKind(answer) === 'unknown CA';
    return { certificate: answer.certificate?.subject ?? null, isOutOfTime, isOfOtherCa, problem, peer };
  } finally {
    socket.destroy();
  }
}

/** Does a handshake with a deadline, after which it says what may hold the connection. */
export async function orSilent<T>(
  handshake: (signal: AbortSignal) => Promise<T>,
  signal: AbortSignal,
  clock: Clock,
): Promise<T> {
  try {
    return await withSignal(handshake, 'the TLS handshake', SILENT_MS, signal, clock);
  } catch (error) {
    if (!(error instanceof DeadlineExceeded)) throw error;
    throw new Error(`connected, but no answer within ${SILENT_MS / 1000} s: ${SILENCE_ADVICE}`, { cause: error });
  }
}

function certificateProblem(answer: TlsAnswer, now: Date, adviceOnCa: string): string | null {
  const { certificate } = answer;
  const kind = distrustKind(answer);
  if (kind === 'plain text') return `it does not answer with TLS; ${PORTAL_ADVICE}; ${OTHERWISE}`;
  if (answer.distrust === null) return null;
  if (certificate === null) return `it breaks off the TLS handshake (${answer.distrust}); ${OTHERWISE}`;
  if (kind === 'foreign') {
    return `signed by ${certificate.issuer} for another name, which is not the gateway's; ${PORTAL_ADVICE}; ${OTHERWISE}`;
  }
  if (kind === 'unknown CA') return `signed by ${certificate.issuer}, a CA that is not trusted here; ${adviceOnCa}`;
  const clock = clockProblem(certificate, now);
  if (clock !== null) return clock;
  if (kind === 'other name') return `the certificate is for another name; ${PORTAL_ADVICE}; ${OTHERWISE}`;
  return `the certificate is not trusted (${answer.distrust})`;
}

function clockProblem({ validFrom, validTo }: { validFrom: Date; validTo: Date }, now: Date): string | null {
  const shown = `the clock of this machine shows ${now.toISOString().slice(0, 10)}`;
  if (now < validFrom) return `${shown}, before the certificate is valid (${validFrom.toISOString()}); set the clock`;
  if (now <= validTo) return null;
  return `${shown}, after the certificate expired (${validTo.toISOString()}); set the clock or renew the certificate`;
}

/** Milliseconds between probes: uniform in this range, so that a fleet never probes in step. */
const MIN_PAUSE_MS = 1900;
const MAX_PAUSE_MS = 2600;
/** So many pauses at first are only half as long: a gateway whose process has ended is back within seconds. */
const SHORT_PAUSES = 5;
/**
 * While a probe is connected, pauses are so many times as long: a gateway whose process is being replaced has the connection in its
 * backlog. Further ones would only make it busier when all its agents come back.
 */
const CONNECTED_FACTOR = 3;
/** On a metered link, pauses are so many times as long after so many: an outage of a day costs a megabyte, not ten. */
const METERED_FACTOR = 9;
const METERED_AFTER = 20;
/** Deadline of one probe; with the shortest pauses, at most eleven run at a time. */
const PROBE_DEADLINE_MS = 15_000;

/**
 * Probes a gateway about every two seconds until it answers, at first more often, however long the outage lasts. Probes may
 * overlap: while a network drops packets, TCP repeats its first packet after 1, 3, 7, 15, 31 and 63 s, and alone would notice
 * the end of a long outage up to a minute late. An unreachable gateway has no load from them.
 *
 * @param isMetered whether probes get seldom in a long outage: some twenty seconds apart
 * @throws AbortError when the signal aborts
 */
export async function waitUntilReachable(
  probe: GatewayProbe,
  { clock, isMetered = false }: { clock: Clock; isMetered?: boolean | undefined },
  signal: AbortSignal,
  onFailure: (error: unknown) => void,
): Promise<ProbeAnswer> {
  return withOwnSignal(signal, (over) => {
    return new Promise<ProbeAnswer>((resolve, reject) => {
      const connected = new Set<object>();
      const launch = async () => {
        const own = {};
        const work = (deadline: AbortSignal) => probe(deadline, () => connected.add(own));
        try {
          resolve(await withSignal(work, 'reaching the gateway', PROBE_DEADLINE_MS, over, clock));
        } catch (error) {
          if (!over.aborted) onFailure(error);
        } finally {
          connected.delete(own);
        }
      };
      const pause = async (ms: number) => {
        await clock.sleep(ms, over);
        for (let times = 1; times < CONNECTED_FACTOR && connected.size > 0; times += 1) await clock.sleep(ms, over);
      };
      const launchAll = async () => {
        for (let probes = 1; ; probes += 1) {
          void launch();
          const factor = isMetered && probes > METERED_AFTER ? METERED_FACTOR : 1;
          const pauseMs = factor * (MIN_PAUSE_MS + clock.random() * (MAX_PAUSE_MS - MIN_PAUSE_MS));
          if (probes <= SHORT_PAUSES) await pause(pauseMs / 2);
          // Short pauses differ little, so that a fleet would still be in step after them.
          else await pause(probes === SHORT_PAUSES + 1 ? clock.random() * MAX_PAUSE_MS : pauseMs);
        }
      };
      launchAll().catch(reject);
    });
  });
}
