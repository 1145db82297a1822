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

/** Exit code of an agent that the operator of its gateway has stopped: the service then stays stopped. */
export const STAY_STOPPED = 6;

/** What systemd passes to a service of type `notify`. */
export interface ServiceManagerSettings {
  /** Socket for notifications: a path, or `@name` for an abstract socket. */
  socket: string;
  /** Milliseconds without a notification after which systemd restarts the service; null: no watchdog. */
  watchdogMs: number | null;
}

/** Reads what systemd passes to a service; null when systemd did not start this process. */
export function loadServiceManager(env: NodeJS.ProcessEnv = process.env): ServiceManagerSettings | null {
  const { NOTIFY_SOCKET: socket, WATCHDOG_USEC: microseconds } = env;
  return socket ? { socket, watchdogMs: microseconds ? Number(microseconds) / 1000 : null } : null;
}
