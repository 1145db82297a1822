import { closeSync, openSync } from 'node:fs';
import { devNull } from 'node:os';
import { hasErrno } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import type { EdgeCounters } from './edge-counters.ts';

/** One wake-up a second, so that an idle device sleeps. */
const CHECK_MS = 1000;
/** Shorter stalls are nothing that agents or clients complain about. */
const STALL_MS = 1000;
const QUIET_MS = 60_000;

/**
 * Logs what a process in trouble cannot report otherwise, at most once a minute: an event loop that stalls, and a full table
 * of file descriptors. Then Node accepts and closes connections without an event.
 */
export function watchProcess(counters: EdgeCounters, log: Log, openFile = openAnyFile): () => void {
  let due = performance.now() + CHECK_MS;
  const stalled = atMostOnceInAWhile();
  const full = atMostOnceInAWhile();
  const timer = setInterval(() => {
    const now = performance.now();
    const late = now - due;
    due = now + CHECK_MS;
    if (late >= STALL_MS) {
      counters.stalledMs += late;
      if (stalled(now)) log.warn({ stalled_ms: Math.round(late) }, 'event loop stalled');
    }
    const code = failureOf(openFile);
    if (code !== null) counters.descriptorsExhaustedAt = now;
    if (code !== null && full(now)) log.error({ code }, 'no file descriptor left: new connections are closed');
  }, CHECK_MS).unref();
  return () => clearInterval(timer);
}

function atMostOnceInAWhile(): (now: number) => boolean {
  let quietUntil = Number.NEGATIVE_INFINITY;
  return (now) => {
    if (now < quietUntil) return false;
    quietUntil = now + QUIET_MS;
    return true;
  };
}

function failureOf(openFile: () => void): string | null {
  try {
    openFile();
    return null;
  } catch (error) {
    return ['EMFILE', 'ENFILE'].find((code) => hasErrno(error, code)) ?? null;
  }
}

function openAnyFile(): void {
  closeSync(openSync(devNull, 'r'));
}
