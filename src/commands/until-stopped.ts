import type { Log } from '../lib/log/log.ts';
import type { ServiceReport, SupervisedProgram } from '../service/service-report.ts';
import { pauseAfterFailures, stoppedInOrder } from '../service/start-pause.ts';
import { loadServiceManager, STAY_STOPPED } from '../settings/common-settings.ts';
import { note } from './output.ts';

/** Milliseconds before a slow stop ends the process; all acknowledged changes are on the disk already. */
const STOP_DEADLINE_MS = 4500;

/**
 * Stops the program at SIGTERM or SIGINT and exits: 0, or 1 when stopping failed. A second signal ends the process
 * immediately.
 *
 * @returns does so without a signal, and has a service stay stopped
 */
export function runUntilStopped(
  running: { stop(): Promise<void> },
  log: Log,
  deadlineMs = STOP_DEADLINE_MS,
): { stayStopped(by: string): void } {
  let stopping = false;
  const onSignal = (signal: NodeJS.Signals) => {
    if (stopping) process.exit(130);
    stopping = true;
    log.info({ signal }, 'stopping');
    void end(running, log, 0, deadlineMs);
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  const stayStopped = (by: string) => {
    if (stopping) return;
    stopping = true;
    log.info({ by }, 'stopping');
    void end(running, log, loadServiceManager() === null ? 0 : STAY_STOPPED, deadlineMs);
  };
  return { stayStopped };
}

/** Has a service wait that has failed repeatedly. A stop meanwhile is one in order. */
export async function pauseAfterFailedStarts(): Promise<void> {
  const folder = loadServiceManager()?.stateFolder ?? null;
  if (folder === null) return;
  const stop = () => void stoppedInOrder(folder).then(() => process.exit(0));
  process.once('SIGTERM', stop);
  await pauseAfterFailures(folder, (line) => note(`device-agent: ${line}`));
  process.off('SIGTERM', stop);
}

/**
 * The signal that ends a command which otherwise never would: aborted at SIGINT, SIGTERM and SIGHUP, and when nobody reads
 * standard output any more. The command then cleans up and exits with 0; a second signal ends the process immediately.
 */
export function stopSignal(): AbortSignal {
  const stopped = new AbortController();
  const onSignal = () => {
    if (stopped.signal.aborted) process.exit(130);
    stopped.abort();
  };
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal).on('SIGHUP', onSignal);
  process.stdout.once('close', () => stopped.abort()).once('error', () => stopped.abort());
  return stopped.signal;
}

/** Logs uncaught errors and ends the process, so that a supervisor restarts it. */
export function endOnUnexpectedError(log: Log): void {
  process.on('uncaughtException', (error) => {
    log.fatal({ err: error }, 'unexpected error; exiting');
    process.exit(1);
  });
}

async function end(running: { stop(): Promise<void> }, log: Log, exitCode: number, deadlineMs: number): Promise<void> {
  setTimeout(() => {
    log.warn('shutdown timed out; exiting');
    process.exit(exitCode);
  }, deadlineMs).unref();
  try {
    await running.stop();
  } catch (error) {
    log.error({ err: error }, 'shutdown failed');
    process.exit(1);
  }
  const folder = loadServiceManager()?.stateFolder ?? null;
  if (folder !== null) await stoppedInOrder(folder);
  log.info('stopped');
  // The SDK's threads may outlive its sessions.
  process.exit(exitCode);
}

/** Reports the program's state to systemd; null when systemd did not start this process. */
export async function serviceReport(program: SupervisedProgram, log: Log): Promise<ServiceReport | null> {
  const settings = loadServiceManager();
  if (settings === null) return null;
  const { Notifier, ServiceReport } = await import('../service/service-report.ts');
  return new ServiceReport({ notifier: new Notifier(settings, log), program, watchdogMs: settings.watchdogMs, log });
}
