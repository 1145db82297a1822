import { createLocalJWKSet, type JSONWebKeySet } from 'jose';
import { z } from 'zod';
import { RecentMap } from '../../lib/recent-map.ts';

type KeySet = ReturnType<typeof createLocalJWKSet>;

const FRESH_MS = 15 * 60 * 1000;
/** How soon a set is fetched again after it could not be had, or did not have the key that was asked for. */
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
  /** When it was last tried to have a newer set, and what is coming of it; the set itself when nothing is. */
  triedAt: number;
  newer: Promise<KeySet>;
}

type Fetch = (url: string, maxBytes: number) => Promise<Buffer>;

/** Key sets of identity providers, fetched when they are needed first and kept for a quarter of an hour. */
export class KeySets {
  readonly #entries = new RecentMap<string, Entry>(MAX_SETS);

  /**
   * A newer set takes the place of one that is kept when it is there: anybody can ask for keys that do not exist, and
   * while the provider does not answer that must not cost those who ask for the others.
   *
   * @param fetch gets the document, with a deadline of its own
   * @param nowMs on a clock that never goes back
   * @param stale whether the key that was asked for is not in the set that is kept
   * @throws Error when the set cannot be had
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
    // Whoever asked is told; the note is for those who ask next.
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
