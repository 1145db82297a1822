import type { ProxyRules } from '../lib/network/proxy-rules.ts';
import { proxyRules } from './common-settings.ts';
import { loadWith } from './parse-settings.ts';
import { readCertificateFile } from './setting-files.ts';
import type { Parsed } from './variables.ts';

/** Settings of the management client, `device-agent setup`. */
export interface ManagementSettings {
  apiUrl: string | null;
  apiKey: string | null;
  /** PEM of the CA to trust; null: the public CAs. */
  apiCa: string | null;
  /** Name of its file; null when not set. */
  apiCaFile: string | null;
  proxies: ProxyRules;
  /** As set, for the device's settings that `setup` prints. */
  serverAddr: string | null;
  caCert: string | null;
}

/** Reads the settings of `device-agent setup`. */
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
    apiCa: readCertificateFile('MANAGEMENT_API_CA_CERT', values, path, problems)?.toString() ?? null,
    apiCaFile: values.MANAGEMENT_API_CA_CERT,
    proxies: proxyRules(values),
    serverAddr: values.NGROK_SERVER_ADDR,
    caCert: values.NGROK_CA_CERT,
  };
}
