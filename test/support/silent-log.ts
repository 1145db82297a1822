import { pino } from 'pino';
import type { Log } from '../../src/lib/log/log.ts';

/** A log without output. */
export const silentLog: Log = pino({ level: 'silent' });

/** A log that records its lines. */
export function recordingLog(): { log: Log; lines: Record<string, unknown>[] } {
  const lines: Record<string, unknown>[] = [];
  const log = pino({ level: 'debug' }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  return { log, lines };
}
