import type { Log } from '../lib/log/log.ts';
import { textsOfFiles } from './setting-sources.ts';
import { VARIABLES } from './variables.ts';

/** Name prefixes of this program's settings. */
const OWN_PREFIX = /^(?:AGENT|GATEWAY|MANAGEMENT_API)_|^NGROK_(?:AUTH|SERVER|CA)/;

/**
 * Names in `.env` and the settings file that look like settings but are not, mostly misspelt ones. Names in the
 * environment are not checked: they may belong to other programs.
 *
 * @throws {OperatorError} when a file is unreadable
 */
export function unknownSettings(env: NodeJS.ProcessEnv = process.env, folder = process.cwd()): string[] {
  return Object.keys(textsOfFiles(env, folder)).filter((name) => OWN_PREFIX.test(name) && !(name in VARIABLES));
}

/** Logs unrecognised settings; they do not prevent the start. */
export function logUnknownSettings(log: Log): void {
  const settings = unknownSettings();
  if (settings.length > 0) log.warn({ settings }, 'unrecognised settings');
}
