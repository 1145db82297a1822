import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** The authtoken that an agent has fetched in place of the one in its settings, in its data folder. */
export const RENEWED_AUTHTOKEN = 'renewed-authtoken.json';

interface Renewed {
  /** Hash of the authtoken in the settings; with another one there, the file is void. */
  replaces: string;
  authtoken: string;
}

/**
 * The authtoken to use.
 *
 * @returns the renewed one if it replaces that one
 */
export function presentAuthtoken(dataDir: string, configured: string): string {
  try {
    const renewed = JSON.parse(readFileSync(join(dataDir, RENEWED_AUTHTOKEN), 'utf8')) as Partial<Renewed>;
    const { replaces, authtoken } = renewed;
    return replaces === hashOf(configured) && typeof authtoken === 'string' ? authtoken : configured;
  } catch {
    // There is none, or it is damaged: the gateway refuses the old one, and the agent fetches it again.
    return configured;
  }
}

/** The content of the file. */
export function renewedText(configured: string, authtoken: string): string {
  return `${JSON.stringify({ replaces: hashOf(configured), authtoken } satisfies Renewed)}\n`;
}

function hashOf(authtoken: string): string {
  return createHash('sha256').update(authtoken).digest('hex');
}
