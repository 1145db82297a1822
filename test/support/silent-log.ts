import { pino } from 'pino';
import type { Log } from '../../src/lib/log.ts';

/** A log that says nothing. */
export const silentLog: Log = pino({ level: 'silent' });

/** A log whose lines can be read. */
export function recordingLog(): { log: Log; lines: Record<string, unknown>[] } {
  const lines: Record<string, unknown>[] = [];
  const log = pino({ level: 'debug' }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  return { log, lines };
}
