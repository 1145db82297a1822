import type { LogFormat, LogLevel } from '../lib/log/log.ts';
import type { ProxyRules } from '../lib/network/proxy-rules.ts';
import type { Parsed } from './variables.ts';

export interface LogSettings {
  level: LogLevel;
  format: LogFormat;
}

/** `auto` means `pretty` on a terminal and `json` elsewhere. */
export function logSettings({ LOG_LEVEL: level, LOG_FORMAT: format }: Parsed): LogSettings {
  const automatic = process.stdout.isTTY ? 'pretty' : 'json';
  return { level: level ?? 'info', format: format === null || format === 'auto' ? automatic : format };
}

/** The proxies of outgoing connections. */
export function proxyRules(values: Parsed): ProxyRules {
  return {
    https: values.HTTPS_PROXY,
    http: values.HTTP_PROXY,
    all: values.ALL_PROXY,
    exempt: values.NO_PROXY ?? (() => false),
  };
}
