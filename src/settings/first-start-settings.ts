import type { ProxyRules } from '../lib/network/proxy-rules.ts';
import type { Settings } from './agent-settings.ts';
import { type LogSettings, logSettings, proxyRules } from './common-settings.ts';
import { type Assemble, parseSettings } from './parse-settings.ts';
import { gatherOwnTexts } from './setting-sources.ts';

/** Where Raspberry Pi OS shows the partition that other computers can write: a code for a new card. */
export const BOOT_FILE = '/boot/firmware/device-agent.join';

/** What an agent knows before it has joined a site. */
export interface FirstStartSettings {
  /** Of AGENT_JOIN_CODE. */
  code: string | null;
  /** The wanted name; null: the hostname. */
  name: string | null;
  dataDir: string;
  /** Where its API will listen. */
  api: Pick<Settings['api'], 'host' | 'port'>;
  proxies: ProxyRules;
  log: LogSettings;
}

/** Reads what `device-agent join` needs; throws as {@link loadFirstStart}. */
export function loadJoinSettings(env: NodeJS.ProcessEnv = process.env, folder = process.cwd()): FirstStartSettings {
  return parseSettings(firstStart, gatherOwnTexts(env, folder), folder);
}

/**
 * Reads what joining at the first start needs.
 *
 * @returns null when the agent has an authtoken or runs its own gateway, so that it must not join
 * @throws {OperatorError} exit code 2, with every invalid variable
 */
export function loadFirstStart(
  env: NodeJS.ProcessEnv = process.env,
  folder = process.cwd(),
): FirstStartSettings | null {
  const texts = gatherOwnTexts(env, folder);
  const isSettled = texts.AGENT_GATEWAY === 'embedded' || 'NGROK_AUTHTOKEN' in texts || 'NGROK_AUTHTOKEN_FILE' in texts;
  return isSettled ? null : parseSettings(firstStart, texts, folder);
}

const firstStart: Assemble<FirstStartSettings> = (values, path) => ({
  code: values.AGENT_JOIN_CODE,
  name: values.AGENT_NAME,
  dataDir: path(values.DATA_DIR),
  api: { host: values.AGENT_HOST, port: values.AGENT_PORT },
  proxies: proxyRules(values),
  log: logSettings(values),
});
