import { createLocalJWKSet, type JSONWebKeySet } from 'jose';
import { z } from 'zod';

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
}

/** Key sets of identity providers, fetched when they are needed first and kept for a quarter of an hour. */
export class KeySets {
  readonly #entries = new Map<string, Entry>();

  /**
   * @param fetch gets the document, with a deadline of its own
   * @param nowMs on a clock that never goes back
   * @param stale whether the key that was asked for is not in the set that is kept
   * @throws Error when the set cannot be had
   */
  get(
    url: string,
    fetch: (url: string, maxBytes: number) => Promise<Buffer>,
    nowMs: number,
    stale: boolean,
  ): Promise<KeySet> {
    const known = this.#entries.get(url);
    const age = known ? nowMs - known.fetchedAt : Number.POSITIVE_INFINITY;
    const life = known?.failed ? FAILED_MS : stale ? AGAIN_MS : FRESH_MS;
    if (known && age < life) return known.keys;
    const entry: Entry = { fetchedAt: nowMs, keys: fetch(url, MAX_BYTES).then(parseKeySet), failed: false };
    // Whoever asked is told; the note is for those who ask next.
    entry.keys.catch(() => {
      entry.failed = true;
    });
    this.#entries.delete(url);
    if (this.#entries.size >= MAX_SETS) this.#entries.delete(this.#entries.keys().next().value ?? '');
    this.#entries.set(url, entry);
    return entry.keys;
  }
}

function parseKeySet(document: Buffer): KeySet {
  return createLocalJWKSet(Document.parse(JSON.parse(document.toString())) as JSONWebKeySet);
}
