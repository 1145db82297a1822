import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { hasErrno, OperatorError } from '../lib/errors.ts';
import { explainUnreadable, writeDurably } from '../lib/files/durable-write.ts';
import type { Log } from '../lib/log/log.ts';
import type { Settings } from './agent-settings.ts';

/** File in the data folder that holds the token when none was set. */
const TOKEN_FILE = 'api-token';

/** The API token in use, and its file; null when a setting gives it. */
interface ApiToken {
  token: string;
  file: string | null;
}

/**
 * The token that remote calls need: from the setting, else from the data folder, where the first start generates it.
 *
 * @throws {OperatorError} when the file exists but cannot be used; replacing it would lock out callers with the old token
 */
export async function openApiToken(settings: Settings): Promise<ApiToken> {
  if (settings.api.token !== null) return { token: settings.api.token, file: null };
  const file = join(settings.dataDir, TOKEN_FILE);
  const token = readTokenFile(file) ?? (await createTokenFile(file));
  return { token, file };
}

/** The token if this user can read it; for the command line. */
export function apiTokenIfAny(settings: Settings): string | null {
  if (settings.api.token !== null) return settings.api.token;
  try {
    return readTokenFile(join(settings.dataDir, TOKEN_FILE)) ?? null;
  } catch {
    // Local calls work without it; other calls are answered with 401.
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
      `damaged API token ${file}: write the token into it again (one line of at least 16 characters without blanks), ` +
        'or delete the file to generate a new token for remote callers',
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

export class ApiTokenInUse {
  private constructor(private current: ApiToken) {}

  /** Without a readable token, remote calls are disabled until it is fixed, but the tunnels start. */
  static async open(settings: Settings, log: Log): Promise<ApiTokenInUse> {
    const token = await openApiToken(settings).catch((error: unknown) => disableRemoteApi(error, log));
    return new ApiTokenInUse(token);
  }

  get token(): string {
    return this.current.token;
  }

  get file(): string | null {
    return this.current.file;
  }

  /** @returns whether it is another one */
  use(token: ApiToken): boolean {
    const isNew = token.token !== this.current.token;
    this.current = token;
    return isNew;
  }
}

/** @returns a token that nobody knows, so that all remote calls are refused until it is fixed */
function disableRemoteApi(error: unknown, log: Log): ApiToken {
  if (!(error instanceof OperatorError)) throw error;
  log.error({ reason: error.message }, 'remote API disabled: cannot read the API token; fix it and reload');
  return { token: newToken(), file: null };
}
