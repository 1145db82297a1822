import { mkdir, open, rename, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { hasErrno } from '../../lib/errors.ts';
import type { EventRow, FileTarget } from '../store/events.ts';
import type { EventSink } from './event-sink.ts';
import { eventJson } from './shown-events.ts';

/** When a file has so many bytes, a new one is begun. */
const MAX_BYTES = 16 * 1024 * 1024;
const KEPT = 4;
/** The end of a file in which its last line is looked for, first. */
const TAIL_BYTES = 64 * 1024;
const BATCH = 100;
const NEWLINE = 0x0a;

/**
 * Appends events as lines of JSON to a file, which only the gateway's user can read. Lines of an earlier gateway are not
 * repeated.
 * @param maxBytes the size at which a new file is begun
 */
export function fileSink({ name }: FileTarget, folder: string, maxBytes = MAX_BYTES): EventSink {
  const path = (number: number) => join(folder, number === 0 ? `${name}.jsonl` : `${name}.${number}.jsonl`);
  /** Id of the event in the last line; null: not read yet. */
  let last: string | null = null;
  /** A slow disk may still be writing what was given up. */
  let writing: Promise<void> = Promise.resolve();
  return {
    batch: BATCH,
    async send(events, signal) {
      await writing.catch(() => {}); // reported where it was started
      await mkdir(folder, { recursive: true, mode: 0o700 });
      // There is none yet when it was killed between two files.
      last ??= (await repairedEnd(path(0))) || (await repairedEnd(path(1)));
      const missing = events.filter(({ id }) => id > (last ?? ''));
      const answer = `${name}.jsonl has it`;
      if (missing.length === 0) return answer;
      if ((await sizeOf(path(0))) >= maxBytes) await rotate(path);
      signal.throwIfAborted();
      // Written in part, its end is repaired the next time.
      last = null;
      writing = append(path(0), missing);
      await writing;
      last = missing.at(-1)?.id ?? null;
      return answer;
    },
  };
}

async function append(path: string, events: readonly EventRow[]): Promise<void> {
  const file = await open(path, 'a', 0o600);
  try {
    await file.appendFile(events.map((event) => `${eventJson(event)}\n`).join(''));
    await file.datasync();
  } finally {
    await file.close();
  }
}

/** Cuts a line off that was not written to its end. @returns the id of the last event; empty if there is none */
async function repairedEnd(path: string): Promise<string> {
  const size = await sizeOf(path);
  if (size === 0) return '';
  const file = await open(path, 'r+');
  try {
    for (let bytes = TAIL_BYTES; ; bytes *= 4) {
      const start = Math.max(0, size - bytes);
      const tail = Buffer.alloc(size - start);
      await file.read(tail, 0, tail.length, start);
      const end = tail.lastIndexOf(NEWLINE);
      const before = tail.subarray(0, Math.max(0, end)).lastIndexOf(NEWLINE);
      // Its last line may be longer than the tail.
      if (before < 0 && start > 0) continue;
      await file.truncate(start + end + 1);
      return /^\{"event_id":"(\w+)"/.exec(tail.toString('utf8', before + 1, end + 1))?.[1] ?? '';
    }
  } finally {
    await file.close();
  }
}

async function rotate(path: (number: number) => string): Promise<void> {
  for (let number = KEPT - 1; number >= 0; number--) {
    await rename(path(number), path(number + 1)).catch((error: unknown) => {
      if (!hasErrno(error, 'ENOENT')) throw error;
    });
  }
}

async function sizeOf(path: string): Promise<number> {
  try {
    return (await stat(path)).size;
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return 0;
    throw error;
  }
}
