import { createLocalJWKSet, type JSONWebKeySet } from 'jose';
import { z } from 'zod';
import { BoundedMap } from '../../lib/bounded-map.ts';
import { unusualJwk } from '../../lib/tls/usual-jwk.ts';
import { type DocumentSource, fetchCharged } from './document-fetches.ts';

export interface KeySet {
  readonly keyFor: ReturnType<typeof createLocalJWKSet>;
  /** Why some of its keys are ignored; null: all are used. */
  readonly unusual: string | null;
}

const FRESH_MS = 15 * 60 * 1000;
/** The delay before another fetch when a fetch failed, or a key was missing in the set. */
const AGAIN_MS = 60 * 1000;
const FAILED_MS = 10 * 1000;

const MAX_BYTES = 256 * 1024;
const MAX_KEYS = 100;
const MAX_SETS = 100;

const Document = z.object({ keys: z.array(z.looseObject({ kty: z.string() })).max(MAX_KEYS) });

interface Entry {
  readonly fetchedAt: number;
  readonly keys: Promise<KeySet>;
  failed: boolean;
  /** When the last fetch started, and its result. */
  triedAt: number;
  newer: Promise<KeySet>;
}

/** Key sets of identity providers: fetched at first use and kept for 15 minutes. */
export class KeySets {
  readonly #entries = new BoundedMap<string, Entry>(MAX_SETS);

  /**
   * Returns the kept set while a newer one is fetched. Any client can ask for unknown keys; while the provider is slow,
   * that must not delay requests with known ones.
   *
   * @param stale whether the kept set lacks the key
   * @param source pays for what is fetched
   * @throws Error when no set can be fetched
   */
  get(url: string, source: DocumentSource, nowMs: number, stale: boolean): Promise<KeySet> {
    const known = this.#entries.get(url);
    if (!known || nowMs - known.fetchedAt >= (known.failed ? FAILED_MS : FRESH_MS)) {
      return this.#keep(url, nowMs, load(url, source));
    }
    if (!stale || known.failed) return known.keys;
    if (nowMs - known.triedAt >= AGAIN_MS) this.#renew(url, known, nowMs, load(url, source));
    return known.newer;
  }

  #renew(url: string, known: Entry, nowMs: number, newer: Promise<KeySet>): void {
    known.triedAt = nowMs;
    known.newer = newer;
    newer.then(
      () => {
        if (this.#entries.get(url) === known) this.#keep(url, nowMs, newer);
      },
      () => {
        known.newer = known.keys;
      },
    );
  }

  #keep(url: string, nowMs: number, keys: Promise<KeySet>): Promise<KeySet> {
    const entry: Entry = { fetchedAt: nowMs, keys, failed: false, triedAt: nowMs, newer: keys };
    // The caller gets the error; the note is for later callers.
    keys.catch(() => {
      entry.failed = true;
    });
    this.#entries.set(url, entry);
    return keys;
  }
}

async function load(url: string, source: DocumentSource): Promise<KeySet> {
  const document = await fetchCharged(source, url, MAX_BYTES);
  return source.time.run(() => parseKeySet(document));
}

/** Leaves out keys whose signatures take long to check. */
function parseKeySet(document: Buffer): KeySet {
  const { keys } = Document.parse(JSON.parse(document.toString()));
  const problems = keys.map(unusualJwk);
  const usual = keys.filter((_, at) => problems[at] === null) as JSONWebKeySet['keys'];
  return {
    keyFor: createLocalJWKSet({ keys: usual }),
    unusual: problems.find((problem) => problem !== null) ?? null,
  };
}
