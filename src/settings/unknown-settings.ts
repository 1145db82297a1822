import type { Log } from '../lib/log.ts';
import { textsOfFiles } from './setting-sources.ts';
import { VARIABLES } from './variables.ts';

/** What a setting of this program is called like. */
const OURS = /^(?:AGENT|GATEWAY|MANAGEMENT_API)_|^NGROK_(?:AUTH|SERVER|CA)/;

/**
 * Names in `.env` and in the file of settings that look like settings and are none: misspelt ones, mostly. Those in the
 * environment may be anybody's.
 *
 * @throws {OperatorError} when a file is there but cannot be read
 */
export function unknownSettings(env: NodeJS.ProcessEnv = process.env, folder = process.cwd()): string[] {
  return Object.keys(textsOfFiles(env, folder)).filter((name) => OURS.test(name) && !(name in VARIABLES));
}

/** A setting that changes nothing is no reason not to start, but has to be told. */
export function logUnknownSettings(log: Log): void {
  const settings = unknownSettings();
  if (settings.length > 0) log.warn({ settings }, 'unrecognised settings');
}
