import { KeyObject, verify } from 'node:crypto';
import { type CryptoKey, errors, type JWTPayload, type JWTVerifyGetKey, type JWTVerifyOptions, jwtVerify } from 'jose';
import { processorNow } from '../../lib/time/clock.ts';
import { type PoolShare, poolShareOf } from '../state/pool-share.ts';
import type { ProcessorTime } from '../state/processor-time.ts';

/** Measured: what jose takes of the event loop for a token, and characters that it parses and hashes in a millisecond. */
const TOKEN_MS = 0.2;
const CHARACTERS_PER_MS = 32_768;
/** Keys with which a token is checked that names none. */
const MAX_TRIED = 10;

type KeyFor = (...of: Parameters<JWTVerifyGetKey>) => Promise<CryptoKey>;

/**
 * Checks a token with the keys of a set.
 *
 * @param time pays for it
 * @throws {JOSEError} why the token is rejected; `JWKSNoMatchingKey` when the set has no key for it
 * @throws Error when a key cannot be used
 */
export async function verifyToken(
  token: string,
  keys: KeyFor,
  options: JWTVerifyOptions,
  time: ProcessorTime,
): Promise<JWTPayload> {
  const check = new TokenCheck(token, options, time);
  try {
    return await check.with(keys);
  } catch (error) {
    if (!(error instanceof errors.JWKSMultipleMatchingKeys)) throw error;
    return await withAny(error, check);
  }
}

/** The token names no key, and several fit. Those that cannot be used are skipped. */
async function withAny(
  keys: InstanceType<typeof errors.JWKSMultipleMatchingKeys>,
  check: TokenCheck,
): Promise<JWTPayload> {
  let tried = 0;
  for await (const key of keys) {
    tried += 1;
    try {
      return await check.with(async () => key);
    } catch (error) {
      const isAnothers = error instanceof errors.JWSSignatureVerificationFailed;
      if (error instanceof errors.JOSEError && !isAnothers) throw error;
    }
    if (tried === MAX_TRIED) break;
  }
  throw new errors.JWKSNoMatchingKey();
}

class TokenCheck {
  readonly #share: PoolShare;

  constructor(
    private readonly token: string,
    private readonly options: JWTVerifyOptions,
    private readonly time: ProcessorTime,
  ) {
    this.#share = poolShareOf(time);
  }

  async with(keys: KeyFor): Promise<JWTPayload> {
    this.time.spend(TOKEN_MS + this.token.length / CHARACTERS_PER_MS);
    let taken = 0;
    // Called when all but the signature was checked.
    const keyFor: JWTVerifyGetKey = async (header, jws) => {
      const key = await keys(header, jws);
      taken = this.#price(key);
      await this.#share.enter(taken, this.time);
      return key;
    };
    try {
      return (await jwtVerify(this.token, keyFor, this.options)).payload;
    } finally {
      this.#share.leave(taken);
    }
  }

  #price(key: CryptoKey): number {
    const ms = this.time.run(() => signatureMs(key));
    // Checking that a point is on its curve takes about as long, once for each key.
    if (!imported.has(key)) this.time.spend(ms);
    imported.add(key);
    return ms;
  }
}

const imported = new WeakSet<CryptoKey>();

/** Measured milliseconds of a signature, by the kind of its key: machines differ by a factor of ten. */
const measured = new Map<string, number>();
const MEASUREMENTS = 3;
const EC_BYTES: Readonly<Record<string, number>> = { 'P-256': 64, 'P-384': 96, 'P-521': 132 };
const ED25519_BYTES = 64;
const DATA = Buffer.alloc(64);

/** What WebCrypto says of a key; of a key object, Node must not be asked: some keys of curves end the process. */
interface KeyAlgorithm {
  readonly name: string;
  readonly modulusLength?: number;
  readonly namedCurve?: string;
}

/** @param imported a usual key, so that there are few kinds */
function signatureMs(imported: CryptoKey): number {
  const { name, modulusLength = 0, namedCurve = '' }: KeyAlgorithm = imported.algorithm;
  const kind = `${name} ${namedCurve} ${Math.ceil(modulusLength / 1024)}`;
  const known = measured.get(kind);
  if (known !== undefined) return known;
  const bytes = EC_BYTES[namedCurve] ?? (modulusLength > 0 ? Math.ceil(modulusLength / 8) : ED25519_BYTES);
  // Its numbers are in range, so that the check goes all the way.
  const signature = Buffer.alloc(bytes, 1);
  const key = KeyObject.from(imported);
  const hash = namedCurve === '' && modulusLength === 0 ? null : 'sha256';
  const times = Array.from({ length: MEASUREMENTS }, () => {
    const start = processorNow();
    verify(hash, DATA, { key, dsaEncoding: 'ieee-p1363' }, signature);
    return processorNow() - start;
  });
  // The one in the middle: other threads of this process count, too.
  const ms = times.sort((one, other) => one - other)[(MEASUREMENTS - 1) / 2] ?? 0;
  measured.set(kind, ms);
  return ms;
}
