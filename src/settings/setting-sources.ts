import { existsSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { parse as parseDotenv } from 'dotenv';
import { hasErrno, messageOf, OperatorError } from '../lib/errors.ts';
import { isLoopbackHost, isUnspecified } from '../lib/network/ip-address.ts';
import { fromEnvironment, readSettingsFile, type SettingsFile, settingOf, type Texts } from './settings-file.ts';
import type { VariableName } from './variables.ts';

export type { Texts } from './settings-file.ts';

/** Names of the credentials in the unit. */
const AUTHTOKEN_CREDENTIAL = 'ngrok-authtoken';
export const ENROLMENT_CREDENTIAL = 'device-agent-enrolment';
/** What a device remembers of joining, in its data folder or, for root, beside the settings of the service. */
export const ENROLMENT_FILE = 'enrolment.json';

/** Secrets that can be set directly or as a file with `_FILE`. */
const SECRETS: readonly VariableName[] = ['NGROK_AUTHTOKEN', 'AGENT_API_TOKEN'];

/** Settings that say where a secret is sent. */
const DESTINATIONS = {
  NGROK_SERVER_ADDR: 'NGROK_AUTHTOKEN',
  MANAGEMENT_API_URL: 'MANAGEMENT_API_KEY',
  AGENT_HOST: 'AGENT_API_TOKEN',
} as const satisfies Partial<Record<VariableName, VariableName>>;

/** What an agent got when it joined at its first start, in its data folder. */
export const JOINED_SETTINGS = 'joined.env';

/**
 * Reads all sources. From the strongest: the file in SETTINGS_FILE, like systemd's EnvironmentFile; the environment;
 * `.env` in the folder; systemd credentials; what the agent got when it joined at its first start.
 *
 * @throws {OperatorError} when a file is unreadable, or one of another program would choose where a secret goes
 */
export function gatherTexts(env: NodeJS.ProcessEnv, folder: string): Texts {
  const set = gatherOwnTexts(env, folder);
  const joined = readJoined(dataFolder(set, folder));
  const stronger = { ...fromEnvironment(env), ...settingsFile(env, folder) };
  refuseDestinations(dotenvIn(folder), folder, stronger, { ...joined, ...credentials(env), ...stronger });
  const texts = overridden(joined, set);
  // The name in an image is only the wanted one: its devices cannot all have it.
  const isSameSite = joined.AGENT_NAME !== undefined && texts.AGENT_SITE === joined.AGENT_SITE;
  return isSameSite ? { ...texts, AGENT_NAME: joined.AGENT_NAME ?? '' } : texts;
}

/** The sources without what the agent got when it joined; throws as {@link gatherTexts}. */
export function gatherOwnTexts(env: NodeJS.ProcessEnv, folder: string): Texts {
  const sources = [credentials(env), dotenvIn(folder).texts, fromEnvironment(env), settingsFile(env, folder)];
  return sources.reduce(overridden);
}

/**
 * A `.env` of another program may come with a cloned repository: it does not choose where a secret goes that is not its own.
 *
 * @param stronger what overrides the file
 * @param others all other sources
 */
function refuseDestinations(dotenv: SettingsFile, folder: string, stronger: Texts, others: Texts): void {
  const { path, isShared, texts, lineOf } = dotenv;
  if (!isShared) return;
  for (const [name, secret] of Object.entries(DESTINATIONS)) {
    const destination = texts[name];
    if (destination === undefined || name in stronger) continue;
    // The agent makes an API token of its own, which commands send to other machines only.
    const isLocal = isLoopbackHost(destination) || isUnspecified(destination);
    const isSent = name === 'AGENT_HOST' ? !isLocal : isFromElsewhere(secret, texts, others, folder);
    if (!isSent) continue;
    throw new OperatorError(
      `${name} in line ${lineOf(name)} of ${path} would choose where ${secret} is sent, and the file also has settings of ` +
        `another program: set ${name} in the environment, or run this in another folder`,
      2,
    );
  }
}

/** Whether a secret is not the file's own: one of other sources, or of a file outside of its folder. */
function isFromElsewhere(secret: string, texts: Texts, others: Texts, folder: string): boolean {
  if (secret in texts) return false;
  const { [`${secret}_FILE`]: file } = texts;
  if (file === undefined) return secret in others || `${secret}_FILE` in others;
  const path = resolve(folder, file);
  return existsSync(path) && relative(realpathSync(folder), realpathSync(path)).startsWith('..');
}

/** Not readable for users other than the service's, who can still call its API. */
function readJoined(folder: string): Texts {
  const file = join(folder, JOINED_SETTINGS);
  try {
    const content = readFileSync(file);
    // It is written with mode 0600, which no repository keeps.
    if ((statSync(file).mode & 0o007) === 0) return fromEnvironment(parseDotenv(content));
  } catch (error) {
    if (['ENOENT', 'ENOTDIR', 'EACCES'].some((code) => hasErrno(error, code))) return {};
    throw new OperatorError(`cannot read ${file}: ${messageOf(error)}`, 2);
  }
  throw new OperatorError(
    `${file} leads to a gateway, but is open to all users, so that it may come from elsewhere, such as a repository: if this ` +
      `device has joined with it, run chmod 600 ${file}; else set DATA_DIR to a new folder`,
    2,
  );
}

/** The data folder, before the settings are checked. */
export function dataFolder(texts: Texts, folder: string): string {
  return resolve(folder, texts.DATA_DIR ?? 'data');
}

function overridden(below: Texts, above: Texts): Texts {
  return { ...withoutOverridden(below, above), ...above };
}

/**
 * Whether the environment or `.env` in the folder sets one of the variables.
 *
 * @throws {OperatorError} when `.env` is unreadable
 */
export function isSetHere(names: readonly VariableName[], env: NodeJS.ProcessEnv, folder: string): boolean {
  const texts = { ...dotenvIn(folder).texts, ...fromEnvironment(env) };
  return names.some((name) => name in texts);
}

/** Values in files that contain only settings of this program. */
export function textsOfFiles(env: NodeJS.ProcessEnv, folder: string): Texts {
  return { ...dotenvIn(folder).texts, ...settingsFile(env, folder) };
}

/** The files with settings that a program reads here, the weakest first. Those of `SETTINGS_FILE` have been chosen by name. */
export function filesOfSettings(env: NodeJS.ProcessEnv, folder: string): SettingsFile[] {
  const { SETTINGS_FILE: named } = env;
  return [dotenvIn(folder), ...(named ? [readSettingsFile(resolve(folder, named), 'own')] : [])];
}

/** A secret and its `_FILE` are one setting: either one overrides both of a weaker source. */
function withoutOverridden(below: Texts, above: Texts): Texts {
  const pairs = SECRETS.map((name) => [name, `${name}_FILE`]);
  const hidden = pairs.filter((pair) => pair.some((name) => name in above)).flat();
  return Object.fromEntries(Object.entries(below).filter(([name]) => !hidden.includes(name)));
}

/**
 * The environment without the variables that systemd read from the settings file. That file is read again on reload, so
 * that removed variables are unset.
 */
export function withoutSettingsFile(env: NodeJS.ProcessEnv, folder: string): NodeJS.ProcessEnv {
  const { SETTINGS_FILE, ...others } = env;
  const inFile = settingsFile(env, folder);
  return {
    ...Object.fromEntries(Object.entries(others).filter(([name]) => !(settingOf(name) in inFile))),
    SETTINGS_FILE,
  };
}

function settingsFile({ SETTINGS_FILE: file }: NodeJS.ProcessEnv, folder: string): Texts {
  return file ? readSettingsFile(resolve(folder, file), 'own').texts : {};
}

/** The `.env` of a folder. */
export const dotenvIn = (folder: string): SettingsFile => readSettingsFile(resolve(folder, '.env'), 'any');

/** Reads the folder of systemd's LoadCredential=, which only this service can read. */
function credentials({ CREDENTIALS_DIRECTORY: folder }: NodeJS.ProcessEnv): Texts {
  if (!folder) return {};
  const authtoken = join(folder, AUTHTOKEN_CREDENTIAL);
  // The unit creates an empty credential for a missing file: otherwise, systemd would not start the program.
  return existsSync(authtoken) && readFileSync(authtoken, 'utf8').trim() ? { NGROK_AUTHTOKEN_FILE: authtoken } : {};
}

/** Where an agent finds its enrolment: the one that root made for the service, else its own. */
export function enrolmentFile(dataDir: string, { CREDENTIALS_DIRECTORY: folder }: NodeJS.ProcessEnv): string {
  const given = folder ? join(folder, ENROLMENT_CREDENTIAL) : null;
  const isGiven = given !== null && existsSync(given) && readFileSync(given, 'utf8').trim() !== '';
  return isGiven ? given : join(dataDir, ENROLMENT_FILE);
}
