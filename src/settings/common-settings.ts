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
  return { level, format: format === 'auto' ? automatic : format };
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
  /** Folder of the service's state; null: it has none. */
  stateFolder: string | null;
}

/** Reads what systemd passes to a service; null when systemd did not start this process. */
export function loadServiceManager(env: NodeJS.ProcessEnv = process.env): ServiceManagerSettings | null {
  const { NOTIFY_SOCKET: socket, WATCHDOG_USEC: microseconds, STATE_DIRECTORY: stateFolder = null } = env;
  return socket ? { socket, watchdogMs: microseconds ? Number(microseconds) / 1000 : null, stateFolder } : null;
}

/** The first descriptor of a socket that systemd passes on (sd_listen_fds(3)). */
const FIRST_FD = 3;

/**
 * The file descriptors of the sockets that systemd holds for this process. Removes the variables that say so: child processes do
 * not get the sockets.
 */
export function takeListenFds(env: NodeJS.ProcessEnv = process.env): number[] {
  const { LISTEN_PID: pid, LISTEN_FDS: count } = env;
  for (const name of ['LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES']) delete env[name];
  if (Number(pid) !== process.pid) return [];
  return Array.from({ length: Number(count) }, (_, at) => FIRST_FD + at);
}
