import { EXIT_UNREACHABLE, messageOf, OperatorError } from '../../lib/errors.ts';
import type { ProxyRules } from '../../lib/network/proxy-rules.ts';
import { backoffDelay } from '../../lib/time/backoff.ts';
import type { Clock } from '../../lib/time/clock.ts';
import { type JoinCode, parseJoinCode } from '../../management/join-code.ts';
import { ENROLMENTS_PATH, Enrolment } from '../../management/resources/enrolment.ts';
import { postVerified } from './gateway-calls.ts';
import type { Installation } from './installation.ts';

export interface EnrolOptions {
  /** The wanted name. */
  name: string;
  proxies: ProxyRules;
  clock: Clock;
  /** Until when an unreachable gateway is tried again, in terms of the clock; null: forever. */
  deadline: number | null;
  /** Called when the device waits for its approval, and when an attempt has failed. */
  onWait: (event: { reason: string; isPending: boolean; wait_ms: number }) => void;
}

/** A device that may come online. */
export interface Enrolled {
  enrolment: Enrolment & { authtoken: string };
  /** PEM of the gateway's own CA; null: a public CA signs the certificate for sessions. */
  caPem: string | null;
}

const BACKOFF = { baseMs: 500, maxMs: 30_000 };

/**
 * Enrols a device. It can be repeated after any interruption: the same installation gets the same device.
 *
 * No secret is sent before the gateway's certificate has been verified with the code's pin.
 *
 * @throws {EnrolmentRefused} when the gateway refuses it
 * @throws {OperatorError} when the code is damaged, the CA is another one than the code's, or time is up
 */
export async function enrol(installation: Installation, options: EnrolOptions): Promise<Enrolled> {
  const code = requireCode(installation.code);
  const { clock, deadline, onWait } = options;
  for (let attempt = 0; ; attempt += 1) {
    const result = await attemptOnce(code, installation.install_key, options);
    if ('enrolment' in result) return result;
    const { reason, isPending } = result;
    const wait_ms = isPending ? result.waitMs : Math.max(BACKOFF.baseMs, backoffDelay(attempt, BACKOFF));
    if (!isPending && deadline !== null && clock.now() + wait_ms > deadline) {
      throw new OperatorError(`cannot reach the gateway at ${code.origin}: ${reason}`, EXIT_UNREACHABLE);
    }
    onWait({ reason, isPending, wait_ms });
    await clock.sleep(wait_ms);
  }
}

/** @throws {OperatorError} exit code 2 when the text is no code */
export function requireCode(text: string): JoinCode {
  const code = parseJoinCode(text);
  if (code?.origin.startsWith('https:')) return code;
  throw new OperatorError('the code is incomplete or damaged: copy all of it, from join- to its end', 2);
}

type Waiting = { isPending: boolean; reason: string; waitMs: number };

async function attemptOnce(
  code: JoinCode,
  installKey: string,
  { name, proxies }: EnrolOptions,
): Promise<Enrolled | Waiting> {
  try {
    const body = { install_key: installKey, secret: code.secret, name };
    const { json, caPem } = await postVerified(code, ENROLMENTS_PATH, body, proxies);
    const enrolment = Enrolment.parse(json);
    const { authtoken, retry_after_s } = enrolment;
    if (authtoken === null) {
      return {
        isPending: true,
        reason: `${enrolment.name} waits for an approval`,
        waitMs: (retry_after_s ?? 5) * 1000,
      };
    }
    return { enrolment: { ...enrolment, authtoken }, caPem: enrolment.session_ca === 'gateway' ? caPem : null };
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    return { isPending: false, reason: messageOf(error), waitMs: 0 };
  }
}
