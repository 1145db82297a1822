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
