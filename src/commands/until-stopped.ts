import type { Log } from '../lib/log.ts';

/** Milliseconds that a stop may take before the process ends regardless; everything answered is on disk anyway. */
const STOP_DEADLINE_MS = 4500;

/**
 * Keeps the process running until SIGTERM or SIGINT, then stops what runs and exits: 0, or 1 when stopping failed.
 * A second signal ends it at once.
 */
export function runUntilStopped(running: { stop(): Promise<void> }, log: Log): void {
  let stopping = false;
  const onSignal = (signal: NodeJS.Signals) => {
    if (stopping) process.exit(130);
    stopping = true;
    log.info({ signal }, 'stopping');
    void end(running, log);
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
}

/** Logs what nobody caught and ends the process, for whoever supervises it to start it anew. */
export function endOnUnexpectedError(log: Log): void {
  process.on('uncaughtException', (error) => {
    log.fatal({ err: error }, 'unexpected error; exiting');
    process.exit(1);
  });
}

async function end(running: { stop(): Promise<void> }, log: Log): Promise<void> {
  setTimeout(() => {
    log.warn('shutdown timed out; exiting');
    process.exit(0);
  }, STOP_DEADLINE_MS).unref();
  try {
    await running.stop();
  } catch (error) {
    log.error({ err: error }, 'shutdown failed');
    process.exit(1);
  }
  log.info('stopped');
  // The SDK's threads may outlive its sessions; nothing is left to wait for.
  process.exit(0);
}
