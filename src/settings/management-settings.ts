import type { ProxyRules } from '../lib/proxy-rules.ts';
import { proxyRules } from './common-settings.ts';
import { loadWith } from './parse-settings.ts';
import { readCertificates } from './setting-files.ts';
import type { Parsed } from './variables.ts';

/** Where the management client goes: `device-agent setup`. */
export interface ManagementSettings {
  apiUrl: string | null;
  apiKey: string | null;
  /** PEM of the authority to trust; null: the public ones. */
  apiCa: string | null;
  proxies: ProxyRules;
  /** As they are set, for the lines that a device gets. */
  serverAddr: string | null;
  caCert: string | null;
}

/** The same for `device-agent setup`. */
export function loadManagementSettings(
  env: NodeJS.ProcessEnv = process.env,
  folder = process.cwd(),
): ManagementSettings {
  return loadWith(managementSettings, env, folder);
}

function managementSettings(values: Parsed, path: (value: string) => string, problems: string[]): ManagementSettings {
  return {
    apiUrl: values.MANAGEMENT_API_URL,
    apiKey: values.MANAGEMENT_API_KEY,
    apiCa: readCertificates('MANAGEMENT_API_CA_CERT', values, path, problems)?.toString() ?? null,
    proxies: proxyRules(values),
    serverAddr: values.NGROK_SERVER_ADDR,
    caCert: values.NGROK_CA_CERT,
  };
}
