import { closest } from '../lib/closest.ts';
import type { Log } from '../lib/log/log.ts';
import { textsOfFiles } from './setting-sources.ts';
import { VARIABLES } from './variables.ts';

/** Name prefixes of this program's settings. */
const OWN_PREFIX = /^(?:AGENT|GATEWAY|MANAGEMENT_API)_|^NGROK_(?:AUTH|SERVER|CA)/;

/** Prefixes that names in the environment share with settings; other programs may use them, too. */
const SHARED_PREFIX = /^(?:AGENT|GATEWAY|MANAGEMENT_API|NGROK)_/;

/**
 * Names that look like settings but are not, mostly misspelt ones. Names in the environment may belong to other programs, so
 * only those count that are similar to a setting.
 *
 * @throws {OperatorError} when a file is unreadable
 */
export function unknownSettings(env: NodeJS.ProcessEnv = process.env, folder = process.cwd()): string[] {
  const inFiles = Object.keys(textsOfFiles(env, folder)).filter((name) => OWN_PREFIX.test(name));
  const isMeant = (name: string) => SHARED_PREFIX.test(name) && closest(name, Object.keys(VARIABLES), 1) !== null;
  const around = Object.keys(env).filter((name) => env[name] && !(name in VARIABLES) && isMeant(name));
  return [...new Set([...inFiles.filter((name) => !(name in VARIABLES)), ...around])];
}

/** The setting that a misspelt name probably means; null without a similar one. */
export function settingMeant(name: string): string | null {
  return closest(name, Object.keys(VARIABLES));
}

/** Logs unrecognised settings; they do not prevent the start. */
export function logUnknownSettings(log: Log): void {
  const settings = unknownSettings();
  if (settings.length === 0) return;
  const meant = settings.flatMap((name) => settingMeant(name) ?? []);
  log.warn({ settings, did_you_mean: meant }, 'unrecognised settings');
}
