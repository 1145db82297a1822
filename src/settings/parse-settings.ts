import { resolve } from 'node:path';
import { closest } from '../lib/closest.ts';
import { messageOf, OperatorError } from '../lib/errors.ts';
import type { Log } from '../lib/log/log.ts';
import { gatherTexts, type Texts, textsOfFiles } from './setting-sources.ts';
import type { Variable } from './variable-kinds.ts';
import { type Parsed, VARIABLES } from './variables.ts';

/** Converts variables to a program's settings. Adds a line to `problems` for each problem. */
export type Assemble<T> = (values: Parsed, path: (value: string) => string, problems: string[]) => T;

/**
 * Reads the settings from all sources.
 *
 * @throws {OperatorError} exit code 2, with all problems
 */
export function loadWith<T>(assemble: Assemble<T>, env: NodeJS.ProcessEnv, folder: string): T {
  return parseSettings(assemble, gatherTexts(env, folder), folder);
}

/** Parses values that were already read; throws as {@link loadWith} does. */
export function parseSettings<T>(assemble: Assemble<T>, texts: Texts, folder: string): T {
  const problems: string[] = [];
  const values = parseVariables(texts, problems);
  const settings = assemble(values, (value) => resolve(folder, value), problems);
  if (problems.length > 0) {
    throw new OperatorError(`invalid settings:\n${problems.map((problem) => `  ${problem}`).join('\n')}`, 2);
  }
  return settings;
}

function parseVariables(texts: Texts, problems: string[]): Parsed {
  const parsed: Record<string, unknown> = {};
  for (const [name, variable] of Object.entries<Variable<unknown>>(VARIABLES)) {
    const value = texts[name] ?? variable.default;
    try {
      parsed[name] = value === null ? null : variable.parse(value);
    } catch (error) {
      parsed[name] = null;
      const shown = variable.secret ? '(not shown)' : JSON.stringify(value);
      problems.push(`${name}=${shown}: ${messageOf(error)}; allowed: ${variable.allowed}`);
    }
  }
  return parsed as Parsed;
}

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
