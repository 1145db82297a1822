import { readFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { parse as parseDotenv } from 'dotenv';
import { closest } from '../lib/closest.ts';
import { hasErrno, messageOf, OperatorError } from '../lib/errors.ts';
import { dataIn } from '../lib/files/own-data.ts';
import { VARIABLES } from './variables.ts';

/** Values by variable name. Empty values are omitted. */
export type Texts = Readonly<Record<string, string>>;

/** A file with settings, as this program reads it. */
export interface SettingsFile {
  path: string;
  /** Whether it also has settings of another program, as the `.env` of a project. */
  isShared: boolean;
  /** The values that count. */
  texts: Texts;
  /** The line, from 1, that sets one of these. */
  lineOf: (setting: string) => number;
  /** Lines that do not count as they seem to. */
  doubtful: readonly DoubtfulLine[];
}

export interface DoubtfulLine {
  /** From 1. */
  line: number;
  /** Null: it is not NAME=value. */
  setting: string | null;
  /** Whether its value counts all the same. */
  counts: boolean;
}

/** Before a setting that other programs have, too. */
export const PREFIX = 'DEVICE_AGENT_';
const OWN_NAME = /^(?:AGENT|GATEWAY|MANAGEMENT_API|NGROK|DEVICE_AGENT)_/;
const NAMES = Object.keys(VARIABLES);
const PROXIES = ['HTTPS_PROXY', 'HTTP_PROXY', 'ALL_PROXY', 'NO_PROXY'];
/** Settings that other programs have, too. SETTINGS_FILE counts only in the environment. */
export const GENERIC: readonly string[] = NAMES.filter((name) => !OWN_NAME.test(name) && name !== 'SETTINGS_FILE');

/** The setting of a name in the environment or a file: generic ones have a second name with the prefix. */
export function settingOf(name: string): string {
  const generic = name.startsWith(PREFIX) ? name.slice(PREFIX.length) : '';
  return GENERIC.includes(generic) ? generic : name;
}

/** Values of the environment by setting. A name with the prefix counts more; proxies are accepted in lower case, as elsewhere. */
export function fromEnvironment(env: NodeJS.ProcessEnv): Texts {
  const entries = Object.entries(env).filter((entry): entry is [string, string] => Boolean(entry[1]));
  const lowerCase = entries.filter(([name]) => PROXIES.includes(name.toUpperCase()) && !PROXIES.includes(name));
  const prefixed = entries.filter(([name]) => settingOf(name) !== name);
  const plain = entries.filter(([name]) => settingOf(name) === name);
  return Object.fromEntries([
    ...lowerCase.map(([name, value]) => [name.toUpperCase(), value]),
    ...plain,
    ...prefixed.map(([name, value]) => [settingOf(name), value]),
  ]);
}

/**
 * Reads a file with settings; a missing one has none. In a `.env` that is also of another program, names that other programs have
 * count only with the prefix. DATA_DIR counts there, too, for a folder that has data of this program: the tunnels of an agent that
 * was set up before that rule would be gone.
 *
 * @param kind `own`: the file is only for this program
 * @throws {OperatorError} when it is unreadable
 */
export function readSettingsFile(path: string, kind: 'own' | 'any'): SettingsFile {
  const content = contentOf(path, kind);
  const values = parseDotenv(content);
  const isShared = kind === 'any' && !isOwn(content, Object.keys(values));
  const { DATA_DIR } = values;
  const keepsData = Boolean(DATA_DIR) && dataIn(resolve(dirname(path), DATA_DIR ?? '')) === 'own';
  const counts = (name: string) => !isShared || !isGeneric(name) || (name === 'DATA_DIR' && keepsData);
  const counting = Object.entries(values).filter(([name]) => counts(name));
  const inDoubt = isShared ? Object.keys(values).filter((name) => isGeneric(name) && values[name]) : [];
  const generic = inDoubt.map((name) => ({ line: lineOf(name, content), setting: name, counts: counts(name) }));
  const doubtful = [...generic, ...malformedLines(content, isShared)];
  const texts = fromEnvironment(Object.fromEntries(counting));
  return { path, isShared, texts, doubtful, lineOf: (setting) => lineOf(nameOf(setting, values), content) };
}

function contentOf(path: string, kind: 'own' | 'any'): string {
  try {
    return readFileSync(path, 'utf8')
      .replace(/^\ufeff/, '')
      .replaceAll('\r\n', '\n');
  } catch (error) {
    // Projects in Python have a folder of this name.
    if (hasErrno(error, 'ENOENT') || (kind === 'any' && hasErrno(error, 'EISDIR'))) return '';
    throw new OperatorError(`cannot read ${path}: ${messageOf(error)}`, 2);
  }
}

/** Whether a file has nothing but settings of this program, and one that no other program has, as a comment at least. */
function isOwn(content: string, names: readonly string[]): boolean {
  const mentioned = [...content.matchAll(/^[ \t#]*(?:export[ \t]+)?(\w+)[ \t]*=/gm)].map(([, name = '']) => name);
  return names.every(isSetting) && mentioned.some((name) => OWN_NAME.test(name) && isSetting(name));
}

/** Misspelt names count, so that a slip does not make the other lines void. */
function isSetting(name: string): boolean {
  if (isGeneric(name) || NAMES.includes(settingOf(name))) return true;
  return OWN_NAME.test(name) && closest(name, NAMES, 1) !== null;
}

const isGeneric = (name: string): boolean =>
  GENERIC.includes(name) || (PROXIES.includes(name.toUpperCase()) && name === name.toLowerCase());

/** The name by which a file sets a setting: the one with the prefix counts more. */
function nameOf(setting: string, values: Texts): string {
  return values[PREFIX + setting] ? PREFIX + setting : setting;
}

/** The last line that sets a name, which is the one that counts. */
function lineOf(name: string, content: string): number {
  const sets = new RegExp(`^\\s*(?:export\\s+)?${name}\\s*[=:]`);
  return content.split('\n').findLastIndex((line) => sets.test(line)) + 1;
}

/** What dotenv reads as one assignment, which may have several lines. */
const ASSIGNMENT =
  /^[ \t]*(?:export\s+)?[\w.-]+(?:\s*=[ \t]*?|:[ \t]+?)(?:[ \t]*'(?:\\'|[^'])*'|[ \t]*"(?:\\"|[^"])*"|[ \t]*`(?:\\`|[^`])*`|[^#\n]+)?[ \t]*(?:#.*)?$/gm;

/** Lines that are neither an assignment nor a comment; in a shared file, those that seem to set one of our names. */
function malformedLines(content: string, isShared: boolean): DoubtfulLine[] {
  const left = content.replace(ASSIGNMENT, (assignment) => assignment.replace(/[^\n]/g, '')).split('\n');
  return left.flatMap((text, at) => {
    const [, name = ''] = /^\s*(?:export\s+)?(\w*)/.exec(text) ?? [];
    const isOurs = OWN_NAME.test(name) && isSetting(name);
    const isMalformed = text.trim() !== '' && !text.trimStart().startsWith('#') && (isOurs || !isShared);
    return isMalformed ? [{ line: at + 1, setting: null, counts: false }] : [];
  });
}
