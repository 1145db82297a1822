import type { ServiceManagerSettings } from '../service/notifier.ts';

/** What systemd says to a service; null: none started this process. */
export function loadServiceManager(env: NodeJS.ProcessEnv = process.env): ServiceManagerSettings | null {
  const { NOTIFY_SOCKET: socket, WATCHDOG_USEC: microseconds } = env;
  return socket ? { socket, watchdogMs: microseconds ? Number(microseconds) / 1000 : null } : null;
}
