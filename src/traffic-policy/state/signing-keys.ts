import { type KeyObject, X509Certificate } from 'node:crypto';
import { BoundedMap } from '../../lib/bounded-map.ts';
import { clientNetwork } from '../../lib/network/ip-address.ts';
import { type BucketRate, TokenBuckets } from '../../lib/time/token-bucket.ts';
import { certificateProblem } from '../../lib/tls/usual-keys.ts';
import { type DocumentSource, fetchCharged } from './document-fetches.ts';

const MAX_CERTIFICATE = 16 * 1024;
/** A provider has one for each region and year. */
const MAX_KEYS = 50;
/** How long a certificate is not fetched again that could not be had, in milliseconds, and how many are remembered. */
const FAILED_MS = 60_000;
const MAX_FAILED = 1_000;
/** At a time. */
const MAX_PENDING = 4;
/** Fetches that one client network causes: the sender of a webhook names the certificate. */
const OF_NETWORK: BucketRate = { burst: 3, perMs: 1 / 60_000 };

/** Whom to fetch a certificate for. */
export interface KeyRequest {
  /** Pays for it. */
  readonly source: DocumentSource;
  /** IP address of the client that has named it. */
  readonly clientIp: string;
  /** Milliseconds of a clock that only goes forward. */
  readonly nowMs: number;
}

/** The keys of certificates that requests name by their URLs. A certificate stays the same; what fails is not asked for again at once. */
export class SigningKeys {
  readonly #keys = new BoundedMap<string, KeyObject>(MAX_KEYS);
  readonly #failedAt = new BoundedMap<string, number>(MAX_FAILED);
  readonly #pending = new Map<string, Promise<KeyObject>>();
  readonly #networks = new TokenBuckets(OF_NETWORK);

  /**
   * @param url which must be the provider's own
   * @throws Error when there is no certificate, its key is unusual, or it cannot be fetched now
   */
  async get(url: string, request: KeyRequest): Promise<KeyObject> {
    const known = this.#keys.get(url);
    if (known) {
      // Used again, so it is kept longer.
      this.#keys.set(url, known);
      return known;
    }
    return this.#pending.get(url) ?? this.#fetch(url, request);
  }

  #fetch(url: string, { source, clientIp, nowMs }: KeyRequest): Promise<KeyObject> {
    const failedAt = this.#failedAt.get(url);
    if (failedAt !== undefined && nowMs - failedAt < FAILED_MS) throw new Error('it failed less than a minute ago');
    if (this.#pending.size >= MAX_PENDING) throw new Error(`more than ${MAX_PENDING} certificates at a time`);
    const network = clientNetwork(clientIp);
    if (!this.#networks.of(network, nowMs).tryTake(nowMs)) {
      throw new Error(`${network} has asked for too many certificates`);
    }
    const fetched = load(url, source).then(
      (key) => {
        this.#keys.set(url, key);
        return key;
      },
      (error) => {
        this.#failedAt.set(url, nowMs);
        throw error;
      },
    );
    const pending = fetched.finally(() => this.#pending.delete(url));
    this.#pending.set(url, pending);
    return pending;
  }
}

async function load(url: string, source: DocumentSource): Promise<KeyObject> {
  const document = await fetchCharged(source, url, MAX_CERTIFICATE);
  return source.time.run(() => {
    const certificate = new X509Certificate(document);
    const problem = certificateProblem(certificate);
    if (problem !== null) throw new Error(`the certificate ${problem}`);
    return certificate.publicKey;
  });
}
