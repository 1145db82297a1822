import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { caIdOf, certificatesIn } from '../lib/tls/pinned-chain.ts';

/** The CAs that an agent's gateway has now, in its data folder, in place of the one in its settings. */
export const LEARNED_CAS = 'gateway-cas.json';

interface Learned {
  /** Hash of the file with the CA in the settings; with another one there, what was learned is void. */
  replaces: string;
  /** PEM of the CAs to trust: the gateway's come last, and its newest one at the end. */
  cas: string;
  /** Ids of the CAs that the gateway has ever shown. */
  shown: readonly string[];
  /** Hash of the authtoken with which the gateway was told that this device trusts them; null: it was not. */
  toldWith: string | null;
}

/**
 * The CAs of its gateway that an agent trusts.
 *
 * @returns PEM: those that it has learned in place of the configured one, or else that
 */
function presentCas(dataDir: string, configured: string | Uint8Array): string | Uint8Array {
  return learnedCas(dataDir, configured)?.cas ?? configured;
}

/** What an agent has learned; null: nothing. */
export function learnedCas(dataDir: string, configured: string | Uint8Array): Omit<Learned, 'replaces'> | null {
  try {
    const content = JSON.parse(readFileSync(join(dataDir, LEARNED_CAS), 'utf8')) as Partial<Learned>;
    const { replaces, cas, shown, toldWith = null } = content;
    if (replaces !== hashOf(configured) || typeof cas !== 'string') return null;
    const ids = certificatesIn(cas).map(caIdOf);
    if (ids.length === 0) return null;
    return { cas, shown: Array.isArray(shown) ? shown : ids, toldWith };
  } catch {
    return null; // There is nothing, or it is damaged: the agent learns it again.
  }
}

/** The content of the file. */
export function learnedText(configured: string | Uint8Array, learned: Omit<Learned, 'replaces'>): string {
  return `${JSON.stringify({ replaces: hashOf(configured), ...learned } satisfies Learned)}\n`;
}

export function hashOf(text: string | Uint8Array): string {
  return createHash('sha256').update(text).digest('hex');
}

/** The CA of a gateway of one's own, as it is in the settings, and as it was learned since. */
export interface OwnCa {
  readonly configured: string | Uint8Array;
  /** PEM of those to trust now, read each time. */
  readonly pem: string | Uint8Array;
}

export function ownCaOf(dataDir: string, configured: string | Uint8Array): OwnCa {
  return {
    configured,
    get pem() {
      return presentCas(dataDir, configured);
    },
  };
}
