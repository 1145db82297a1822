import { createLocalJWKSet, type JSONWebKeySet } from 'jose';
import { z } from 'zod';
import { BoundedMap } from '../../lib/bounded-map.ts';

type KeySet = ReturnType<typeof createLocalJWKSet>;

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

type Fetch = (url: string, maxBytes: number) => Promise<Buffer>;

/** Key sets of identity providers: fetched at first use and kept for 15 minutes. */
export class KeySets {
  readonly #entries = new BoundedMap<string, Entry>(MAX_SETS);

  /**
   * Returns the kept set while a newer one is fetched. Any client can ask for unknown keys; while the provider is slow,
   * that must not delay requests with known ones.
   *
   * @param stale whether the kept set lacks the key
   * @throws Error when no set can be fetched
   */
  get(url: string, fetch: Fetch, nowMs: number, stale: boolean): Promise<KeySet> {
    const known = this.#entries.get(url);
    if (!known || nowMs - known.fetchedAt >= (known.failed ? FAILED_MS : FRESH_MS)) {
      return this.#keep(url, nowMs, load(url, fetch));
    }
    if (!stale || known.failed) return known.keys;
    if (nowMs - known.triedAt >= AGAIN_MS) this.#renew(url, known, nowMs, load(url, fetch));
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

function load(url: string, fetch: Fetch): Promise<KeySet> {
  return fetch(url, MAX_BYTES).then(parseKeySet);
}

function parseKeySet(document: Buffer): KeySet {
  return createLocalJWKSet(Document.parse(JSON.parse(document.toString())) as JSONWebKeySet);
}
