import type { ProxyRules } from '../lib/network/proxy-rules.ts';
import { proxyRules } from './common-settings.ts';
import { loadWith } from './parse-settings.ts';
import type { Parsed } from './variables.ts';

/** Settings of `device-agent update`. */
export interface UpdateSettings {
  automatic: 'off' | 'security' | 'stable';
  /** Null: where the program was published. */
  from: string | null;
  proxies: ProxyRules;
}

/** Reads the settings of `device-agent update`. */
export function loadUpdateSettings(env: NodeJS.ProcessEnv = process.env, folder = process.cwd()): UpdateSettings {
  return loadWith(updateSettings, env, folder);
}

function updateSettings(values: Parsed): UpdateSettings {
  return { automatic: values.AGENT_UPDATE, from: values.AGENT_UPDATE_FROM, proxies: proxyRules(values) };
}
