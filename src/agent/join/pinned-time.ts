import { createHash, randomBytes, verify, X509Certificate } from 'node:crypto';
import type { ProxyRules } from '../../lib/network/proxy-rules.ts';
import { caIdOf } from '../../lib/tls/pinned-chain.ts';
import { isSignedBy, isValidAt, type ProvedTime } from '../../lib/tls/trusted-time.ts';
import { type FetchOptions, fetchTrusting } from '../../management/fetch-trusting.ts';
import { TIME_NAME, TIME_PATH, TimePayload, TimeProof } from '../../management/resources/time-proof.ts';

/** How long an answer may take. Somebody on the way can hold one back for so long, and the time is late by as much. */
const ANSWER_MS = 5_000;
const MAX_BYTES = 64 * 1024;
/** Older than this program: no gateway proves such a time. */
const EARLIEST = Date.parse('2025-01-01T00:00:00Z');

/** Where a gateway proves the time, and which CA has to have certified its key. */
export interface TimePlace {
  /** Origin of the management API. */
  origin: string;
  /** Where that is reached; left out: at the host of the origin. */
  address?: NonNullable<FetchOptions['address']>;
  proxies: ProxyRules;
  /** CAs, or the SHA-256 of one. */
  pinned: readonly X509Certificate[] | Buffer;
}

/** Members of a gateway's answer beside the time. */
interface PresentCas {
  /** PEM of its own CAs; null: it is an earlier version. */
  cas: readonly string[] | null;
  /** Ids of CAs that have ended, as the newest one says. */
  ended: readonly string[];
  /** PEM of roots that certificates at its names lead to, beside the public ones. */
  roots: readonly string[];
}

/**
 * Asks a gateway for the time, over a connection that nobody has verified: only the answer counts. It gets a random number and
 * nothing else.
 *
 * @throws when the answer is not there, or does not hold
 */
export async function askForTime(place: TimePlace): Promise<ProvedTime & PresentCas> {
  const nonce = randomBytes(32).toString('base64url');
  return openProof(await askFor(place, nonce), nonce, place.pinned);
}

async function askFor({ origin, address, proxies }: TimePlace, nonce: string): Promise<TimeProof> {
  const ask = fetchTrusting({ proxies, isUnverified: true, maxBytes: MAX_BYTES, ...(address && { address }) });
  const answer = await ask(origin + TIME_PATH, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    redirect: 'manual',
    signal: AbortSignal.timeout(ANSWER_MS),
    body: JSON.stringify({ nonce }),
  });
  if (answer.status === 404) throw new Error(`${origin} does not prove the time: update the gateway or set the clock`);
  const text = await answer.text();
  if (answer.status !== 200) throw new Error(messageIn(text) ?? `${origin} answered with status ${answer.status}`);
  const proof = TimeProof.safeParse(jsonOf(text));
  if (!proof.success) throw new Error(`${origin} answered with something else`);
  return proof.data;
}

/**
 * Verifies a proof by the pinned CA, and by no date of this machine.
 *
 * @throws when another CA has certified its key, or it was made for another request
 */
export function openProof(proof: TimeProof, nonce: string, pinned: TimePlace['pinned']): ProvedTime & PresentCas {
  // Several CAs have signed it while the CA is being changed.
  for (const signed of [proof, ...(proof.others ?? [])]) {
    const key = certificateOf(signed.certificate);
    const ca = pinnedCaOf(signed, pinned).find((each) => isSignedBy(key, each));
    if (ca) return openSigned({ ...signed, payload: proof.payload }, nonce, { key, ca });
  }
  throw new Error('the answer is signed by another CA than the pinned one: somebody else answers');
}

function openSigned(
  proof: Pick<TimeProof, 'payload' | 'signature'>,
  nonce: string,
  { key, ca }: { key: X509Certificate; ca: X509Certificate },
): ProvedTime & PresentCas {
  if (key.subjectAltName !== `DNS:${TIME_NAME}`) throw new Error('the answer is signed by a key for something else');
  const bytes = Buffer.from(proof.payload);
  if (!verify('sha256', bytes, key.publicKey, Buffer.from(proof.signature, 'base64url')))
    throw new Error('the answer has a wrong signature');
  const payload = TimePayload.safeParse(jsonOf(proof.payload));
  if (!payload.success) throw new Error('the answer states no time');
  if (payload.data.nonce !== nonce) throw new Error('the answer belongs to another request: it may be a replay');
  const time = Date.parse(payload.data.time);
  if (time < EARLIEST) throw new Error(`it proves ${payload.data.time}: its own clock is not set`);
  if (!isValidAt(key, time) || !isValidAt(ca, time))
    throw new Error('its key was not valid at the time that it proves');
  const { certificates, cas = null, ended_cas = [], roots = [] } = payload.data;
  const newest = cas?.at(-1);
  // One that has ended must not end the one that has replaced it.
  const ended = newest !== undefined && caIdOf(certificateOf(newest)) === caIdOf(ca) ? ended_cas : [];
  return { time, ca, certificates: new Set(certificates), cas, ended, roots };
}

function pinnedCaOf({ ca }: Pick<TimeProof, 'ca'>, pinned: TimePlace['pinned']): readonly X509Certificate[] {
  if (!Buffer.isBuffer(pinned)) return pinned;
  const sent = certificateOf(ca);
  return createHash('sha256').update(sent.raw).digest().equals(pinned) ? [sent] : [];
}

function certificateOf(pem: string): X509Certificate {
  try {
    return new X509Certificate(pem);
  } catch (cause) {
    throw new Error('the answer has a damaged certificate', { cause });
  }
}

function messageIn(text: string): string | null {
  const { msg } = (jsonOf(text) ?? {}) as { msg?: unknown };
  return typeof msg === 'string' ? msg.slice(0, 300) : null;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
