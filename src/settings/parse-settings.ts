import { resolve } from 'node:path';
import { closest } from '../lib/closest.ts';
import { messageOf, OperatorError } from '../lib/errors.ts';
import type { Log } from '../lib/log/log.ts';
import { dotenvIn, filesOfSettings, gatherTexts, type Texts } from './setting-sources.ts';
import { GENERIC, PREFIX, settingOf } from './settings-file.ts';
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
  const values = parseVariables(texts, folder, problems);
  const settings = assemble(values, (value) => resolve(folder, value), problems);
  if (problems.length > 0) {
    throw new OperatorError(`invalid settings:\n${problems.map((problem) => `  ${problem}`).join('\n')}`, 2);
  }
  return settings;
}

function parseVariables(texts: Texts, folder: string, problems: string[]): Parsed {
  const parsed: Record<string, unknown> = {};
  for (const [name, variable] of Object.entries<Variable<unknown>>(VARIABLES)) {
    const value = texts[name] ?? variable.default;
    try {
      parsed[name] = value === null ? null : variable.parse(value);
    } catch (error) {
      // So that the rest can be looked at, too.
      parsed[name] = variable.default === null ? null : variable.parse(variable.default);
      const shown = variable.secret ? '(not shown)' : JSON.stringify(value);
      const place = placeOf(name, texts, folder);
      problems.push(`${name}=${shown}${place}: ${messageOf(error)}; allowed: ${variable.allowed}`);
    }
  }
  return parsed as Parsed;
}

/** Where a value is in `.env`, which people may have forgotten, for a message; empty when it comes from elsewhere. */
function placeOf(name: string, texts: Texts, folder: string): string {
  const { path, texts: found, lineOf } = dotenvIn(folder);
  return name in found && found[name] === texts[name] ? ` in line ${lineOf(name)} of ${path}` : '';
}

/** Name prefixes of this program's settings. */
const OWN_PREFIX = /^(?:AGENT|GATEWAY|MANAGEMENT_API|DEVICE_AGENT)_|^NGROK_(?:AUTH|SERVER|CA)/;

/** Prefixes that names elsewhere share with settings; other programs may use them, too. */
const SHARED_PREFIX = /^(?:AGENT|GATEWAY|MANAGEMENT_API|NGROK|DEVICE_AGENT)_/;

/**
 * Names that look like settings but are not, mostly misspelt ones. Names in the environment, or in a file of another program,
 * only count when they are similar to a setting.
 *
 * @throws {OperatorError} when a file is unreadable
 */
export function unknownSettings(env: NodeJS.ProcessEnv = process.env, folder = process.cwd()): string[] {
  const isUnknown = (name: string) => !(settingOf(name) in VARIABLES);
  const isMeant = (name: string) => SHARED_PREFIX.test(name) && closest(name, KNOWN, 1) !== null;
  const inFiles = filesOfSettings(env, folder).flatMap(({ texts, isShared }) =>
    Object.keys(texts).filter((name) => isUnknown(name) && (isShared ? isMeant(name) : OWN_PREFIX.test(name))),
  );
  const around = Object.keys(env).filter((name) => env[name] && isUnknown(name) && isMeant(name));
  return [...new Set([...inFiles, ...around])];
}

/** All names of settings. */
const KNOWN = [...Object.keys(VARIABLES), ...GENERIC.map((name) => PREFIX + name)];

/** The setting that a misspelt name probably means; null without a similar one. */
export function settingMeant(name: string): string | null {
  return closest(name, KNOWN);
}

/** What is wrong with a line of a file with settings, and what to do. */
export interface LineProblem {
  detail: string;
  advice: string;
  /** Whether it is certainly a mistake; else it may be meant for another program. */
  isMistake: boolean;
}

/**
 * Lines of the files with settings that do not count as they seem to.
 *
 * @throws {OperatorError} when a file is unreadable
 */
export function lineProblems(env: NodeJS.ProcessEnv = process.env, folder = process.cwd()): LineProblem[] {
  return filesOfSettings(env, folder).flatMap(({ path, doubtful }) =>
    doubtful.map(({ line, setting, counts }) => {
      const at = `line ${line} of ${path}`;
      if (setting === null)
        return { detail: `${at} is not NAME=value`, advice: 'correct or remove it', isMistake: true };
      const alias = PREFIX + setting.toUpperCase();
      const why = 'the file also has settings of another program';
      const detail = counts
        ? `${setting} in ${at} counts only because that folder has data of this program: ${why}`
        : `${setting} in ${at} does not count: ${why}`;
      return { detail, advice: `if it is meant for this program, name it ${alias}`, isMistake: false };
    }),
  );
}

/**
 * Logs where the settings come from that nobody has typed, and what is wrong with them; nothing of that prevents the start.
 *
 * @param log that of the settings, which may hide the first line: a file that redirects the agent must not stay unnoticed
 * @param tell prints a line for people
 */
export function logSettingSources(log: Log, tell: (line: string) => void): void {
  for (const { path, texts } of filesOfSettings({}, process.cwd())) {
    const settings = Object.keys(texts).filter((name) => name in VARIABLES);
    if (settings.length === 0) continue;
    if (log.isLevelEnabled('info')) log.info({ file: path, settings }, 'settings read from the current folder');
    else if (process.stderr.isTTY) tell(`settings read from ${path}: ${settings.join(', ')}`);
  }
  for (const { detail, advice } of lineProblems())
    log.warn({ reason: `${detail}; ${advice}` }, 'doubtful line of settings');
  const settings = unknownSettings();
  if (settings.length === 0) return;
  const meant = settings.flatMap((name) => settingMeant(name) ?? []);
  log.warn({ settings, did_you_mean: meant }, 'unrecognised settings');
}
