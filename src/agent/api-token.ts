import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { explainUnreadable, writeDurably } from '../lib/durable-write.ts';
import { hasErrno, OperatorError } from '../lib/errors.ts';
import type { Settings } from '../settings/agent-settings.ts';

/** File in the data folder that holds the token when none was set. */
const TOKEN_FILE = 'api-token';

/** A token that is in use, and the file it was read from or written to (null: it was set). */
export interface ApiToken {
  token: string;
  file: string | null;
}

/**
 * The token that calls from outside this machine need: the one that was set, else the one in the
 * data folder, which is generated at the first start.
 *
 * @throws {OperatorError} when the file is there but cannot be used; it is never replaced silently,
 *   as that would lock out whoever holds the old token
 */
export async function openApiToken(settings: Settings): Promise<ApiToken> {
  if (settings.api.token !== null) return { token: settings.api.token, file: null };
  const file = join(settings.dataDir, TOKEN_FILE);
  const token = readTokenFile(file) ?? (await createTokenFile(file));
  return { token, file };
}

/** Stands in for one that cannot be had: as nobody knows it, nobody is let in. */
export function tokenOfNobody(): ApiToken {
  return { token: newToken(), file: null };
}

/** The token, when there is one that this user may read; for the command line. */
export function apiTokenIfAny(settings: Settings): string | null {
  if (settings.api.token !== null) return settings.api.token;
  try {
    return readTokenFile(join(settings.dataDir, TOKEN_FILE)) ?? null;
  } catch {
    // Local calls work without it; where it is needed, the API's answer says so.
    return null;
  }
}

function readTokenFile(file: string): string | undefined {
  let token: string;
  try {
    token = readFileSync(file, 'utf8').trim();
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return undefined;
    throw explainUnreadable(file, error);
  }
  if (!/^[\x21-\x7e]{16,}$/.test(token)) {
    throw new OperatorError(
      `the API token ${file} is damaged, and was left as it is: write the token into it again (one line of at least 16 ` +
        'characters without blanks), or delete the file to have a new one made, which remote callers then have to use',
    );
  }
  return token;
}

async function createTokenFile(file: string): Promise<string> {
  const token = newToken();
  await writeDurably(file, `${token}\n`, 0o600);
  return token;
}

function newToken(): string {
  return randomBytes(24).toString('base64url');
}
