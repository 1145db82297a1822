import { createPrivateKey, type KeyObject, sign, X509Certificate } from 'node:crypto';
import { ApiError } from '../../lib/errors.ts';
import { certificatesIn } from '../../lib/tls/pinned-chain.ts';
import {
  MAX_CAS,
  MAX_ENDED,
  TIME_NAME,
  TIME_STATEMENT,
  type TimePayload,
  type TimeProof,
} from '../../management/resources/time-proof.ts';
import type { Leaf } from './local-ca/certificate-files.ts';
import { isPlausible } from './local-ca/certificate-validity.ts';
import type { LocalCa } from './local-ca/local-ca.ts';

const RETRY_S = 60;

interface TimeKey {
  certificate: string;
  key: KeyObject;
  /** From when until when it is used, in milliseconds since 1970. */
  from: number;
  until: number;
}

/**
 * Signs the time for devices whose clocks are wrong. They verify nothing but this: the key has a certificate of the gateway's own
 * CA, which they have pinned.
 */
export class TimeProofs {
  /** By the ids of CAs. */
  readonly #keys = new Map<string, Promise<TimeKey>>();

  constructor(
    private readonly own: {
      ca: Pick<LocalCa, 'all'>;
      /** PEM of the certificates at the gateway's own names that other CAs have signed. */
      certificates: () => readonly string[];
      /** Ids of CAs before; left out: none. */
      ended?: () => readonly string[];
      /** PEM of the root of a private CA that signs the gateway's names; left out or null: there is none. */
      root?: string | null;
      /** Milliseconds since 1970. */
      now?: () => number;
    },
  ) {}

  /** @throws {ApiError} 503 when this machine's clock is not set */
  async prove(nonce: string): Promise<TimeProof> {
    const { ca, certificates, ended = () => [], root = null, now = Date.now } = this.own;
    const cas = ca.all;
    const keys = await Promise.all(cas.map((each) => this.#presentKey(each, now())));
    const time = now();
    if (!isPlausible(time)) throw clockNotSet(time);
    const named = certificates().map((pem) => new X509Certificate(pem).fingerprint256);
    const content: TimePayload = {
      statement: TIME_STATEMENT,
      nonce,
      time: new Date(time).toISOString(),
      certificates: [...new Set(named)],
      cas: cas.map(({ caPem }) => caPem),
      ended_cas: ended().slice(-MAX_ENDED),
      ...(root !== null && { roots: certificatesIn(root).slice(0, MAX_CAS).map(String) }),
    };
    const payload = JSON.stringify(content);
    const signed = keys.map(({ certificate, key }, at) => ({
      signature: sign('sha256', Buffer.from(payload), key).toString('base64url'),
      certificate,
      ca: cas[at]?.caPem ?? '',
    }));
    const [first, ...others] = signed;
    if (first === undefined) throw new Error('the gateway has no CA');
    return { payload, ...first, ...(others.length > 0 && { others }) };
  }

  async #presentKey(ca: LocalCa, now: number): Promise<TimeKey> {
    const known = await this.#keys.get(ca.id)?.catch(() => null);
    if (known && known.from <= now && now < known.until) return known;
    const key = ca.issue([TIME_NAME]).then(timeKey);
    this.#keys.set(ca.id, key);
    return key;
  }
}

function timeKey({ cert: certificate, key, renewAt }: Leaf): TimeKey {
  const from = Date.parse(new X509Certificate(certificate).validFrom);
  return { certificate, key: createPrivateKey(key), from, until: renewAt };
}

function clockNotSet(time: number): ApiError {
  const message = `the gateway's own clock shows ${new Date(time).toISOString()}: it proves no time; set it`;
  return new ApiError(503, 'ERR_GATEWAY_CLOCK_NOT_SET', message, { retryAfter: RETRY_S });
}
