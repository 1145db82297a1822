import { X509Certificate } from 'node:crypto';
import { rootCertificates } from 'node:tls';
import { EXIT_UNREACHABLE, messageOf, OperatorError } from '../../lib/errors.ts';
import type { ProxyRules } from '../../lib/network/proxy-rules.ts';
import { backoffDelay } from '../../lib/time/backoff.ts';
import type { Clock } from '../../lib/time/clock.ts';
import { fetchTrusting } from '../../management/fetch-trusting.ts';
import { type JoinCode, parseJoinCode } from '../../management/join-code.ts';
import { CA_PATH, ENROLMENTS_PATH, Enrolment } from '../../management/resources/enrolment.ts';
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

const CALL_MS = 20_000;
const BACKOFF = { baseMs: 500, maxMs: 30_000 };
/** Of an answer: it may come from somebody else, who must not fill the memory. */
const MAX_BYTES = 64 * 1024;

/** Answers after which another attempt can succeed. */
const isTemporary = (status: number) => status === 429 || status >= 500;

/** The gateway refused the device. */
export class EnrolmentRefused extends OperatorError {}

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

async function attemptOnce(code: JoinCode, installKey: string, options: EnrolOptions): Promise<Enrolled | Waiting> {
  const failed = (reason: string): Waiting => ({ isPending: false, reason, waitMs: 0 });
  try {
    const caPem = await fetchCa(code, options);
    const body = { install_key: installKey, secret: code.secret, name: options.name };
    const { status, text } = await call(code, ENROLMENTS_PATH, trustOf(code, caPem), options, JSON.stringify(body));
    if (isTemporary(status)) return failed(`it answered with status ${status}`);
    const json: unknown = JSON.parse(text);
    if (status !== 200) throw new EnrolmentRefused(refusalText(json, status));
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
    return failed(messageOf(error));
  }
}

function refusalText(json: unknown, status: number): string {
  const { msg, error_code } = json as { msg?: unknown; error_code?: unknown };
  return typeof msg === 'string' ? `${msg} (${error_code})` : `the gateway answered with status ${status}`;
}

/**
 * Fetches the gateway's CA over a connection that nobody has verified yet, and compares it with the code's pin.
 *
 * @returns null when the code has no pin, because public CAs sign all certificates
 */
async function fetchCa(code: JoinCode, options: EnrolOptions): Promise<string | null> {
  if (code.pin === null) return null;
  const { status, text } = await call(code, CA_PATH, { isUnverified: true }, options);
  if (isTemporary(status)) throw new Error(`it answered with status ${status}`);
  const pem = onlyCertificate(text);
  if (pem !== null && sha256Of(pem).equals(code.pin)) return pem;
  throw new OperatorError(
    `the CA of ${code.origin} is not the one of the code: somebody intercepts the connection, or the gateway has a new CA. ` +
      'Nothing was sent; make a new code with `gateway invite` and compare',
  );
}

/** The first certificate in a text, alone: what else there is has no pin. */
function onlyCertificate(text: string): string | null {
  try {
    return new X509Certificate(text).toString();
  } catch {
    return null;
  }
}

function sha256Of(pem: string): Buffer {
  return Buffer.from(new X509Certificate(pem).fingerprint256.replaceAll(':', ''), 'hex');
}

/** A public CA signs the API's certificate where the code says so, once it has been issued. */
function trustOf({ isPublic }: JoinCode, caPem: string | null): { ca?: string } {
  if (caPem === null) return {};
  return { ca: isPublic ? [caPem, ...rootCertificates].join('\n') : caPem };
}

async function call(
  { origin }: JoinCode,
  path: string,
  trust: { ca?: string; isUnverified?: boolean },
  { proxies }: EnrolOptions,
  body?: string,
): Promise<{ status: number; text: string }> {
  const fetch = fetchTrusting({ ...trust, proxies, maxBytes: MAX_BYTES });
  const signal = AbortSignal.timeout(CALL_MS);
  const answer = await fetch(origin + path, {
    method: body === undefined ? 'GET' : 'POST',
    headers: body === undefined ? {} : { 'content-type': 'application/json' },
    redirect: 'manual',
    signal,
    ...(body !== undefined && { body }),
  });
  return { status: answer.status, text: await answer.text() };
}
