import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parse as parseDotenv } from 'dotenv';
import { hasErrno, messageOf, OperatorError } from '../lib/errors.ts';
import type { VariableName } from './variables.ts';

/** Values by the names of variables; an empty value is the same as none. */
export type Texts = Readonly<Record<string, string>>;

/** What the unit calls the credential that holds the authtoken. */
const AUTHTOKEN_CREDENTIAL = 'ngrok-authtoken';

/** Each may be given by itself, or by the name of a file. */
const SECRETS: readonly VariableName[] = ['NGROK_AUTHTOKEN', 'AGENT_API_TOKEN'];

/**
 * Gathers what is set, whoever set it. What wins, from the top: the file that SETTINGS_FILE names, as systemd's
 * EnvironmentFile does; the environment; `.env` in the folder; credentials of systemd.
 *
 * @throws {OperatorError} when a file is there but cannot be read
 */
export function gatherTexts(env: NodeJS.ProcessEnv, folder: string): Texts {
  const sources = [credentials(env), readDotenv(resolve(folder, '.env')), present(env), settingsFile(env, folder)];
  return sources.reduce((below, above) => ({ ...withoutRivals(below, above), ...above }));
}

/** What is set in the files that are for this program's settings alone. */
export function textsOfFiles(env: NodeJS.ProcessEnv, folder: string): Texts {
  return { ...readDotenv(resolve(folder, '.env')), ...settingsFile(env, folder) };
}

/** A secret and the file that holds it are one setting: who sets either means neither of a source that wins less. */
function withoutRivals(below: Texts, above: Texts): Texts {
  const pairs = SECRETS.map((name) => [name, `${name}_FILE`]);
  const hidden = pairs.filter((pair) => pair.some((name) => name in above)).flat();
  return Object.fromEntries(Object.entries(below).filter(([name]) => !hidden.includes(name)));
}

/**
 * The environment without what systemd put into it from the file of settings: that file is read anew, and a variable
 * that is no longer in it is not set any more.
 */
export function withoutSettingsFile(env: NodeJS.ProcessEnv, folder: string): NodeJS.ProcessEnv {
  const { SETTINGS_FILE, ...others } = env;
  const inFile = settingsFile(env, folder);
  return { ...Object.fromEntries(Object.entries(others).filter(([name]) => !(name in inFile))), SETTINGS_FILE };
}

function settingsFile({ SETTINGS_FILE: file }: NodeJS.ProcessEnv, folder: string): Texts {
  return file ? readDotenv(resolve(folder, file)) : {};
}

/** What systemd's LoadCredential= hands over: a folder that this service alone may read. */
function credentials({ CREDENTIALS_DIRECTORY: folder }: NodeJS.ProcessEnv): Texts {
  if (!folder) return {};
  const authtoken = join(folder, AUTHTOKEN_CREDENTIAL);
  // For a file that is missing the unit stands in an empty one; else systemd would end the start without a word of ours.
  return existsSync(authtoken) && readFileSync(authtoken, 'utf8').trim() ? { NGROK_AUTHTOKEN_FILE: authtoken } : {};
}

/** The names of proxies are often written in small letters, and some programs know only those. */
function present(env: NodeJS.ProcessEnv): Texts {
  const proxies = ['HTTPS_PROXY', 'HTTP_PROXY', 'ALL_PROXY', 'NO_PROXY'];
  const inSmallLetters = Object.fromEntries(proxies.map((name) => [name, env[name.toLowerCase()]]));
  return { ...withoutEmpty(inSmallLetters), ...withoutEmpty(env) };
}

function withoutEmpty(env: NodeJS.ProcessEnv): Texts {
  return Object.fromEntries(Object.entries(env).filter((entry): entry is [string, string] => Boolean(entry[1])));
}

function readDotenv(path: string): Texts {
  try {
    return present(parseDotenv(readFileSync(path)));
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return {};
    throw new OperatorError(`cannot read ${path}: ${messageOf(error)}`, 2);
  }
}
