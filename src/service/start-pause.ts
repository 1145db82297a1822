import { readFile, rm, writeFile } from 'node:fs/promises';
import { uptime } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

/** Seconds before a start, by the number of starts before it that were followed by no orderly stop; the last one for all more. */
const PAUSES_S = [0, 0, 1, 2, 5, 10, 30, 60];
/** Failures count for so many seconds. */
const RECENT_S = 600;

/** Hidden, as it is there before the program looks whose data the folder has. */
const fileIn = (folder: string) => join(folder, '.starts.json');

/**
 * Waits before a start that follows repeated failures: a service that cannot run would wear out an SD card by its log. systemd
 * can do so from version 254 on, but counts failures until the next stop, however long ago they were.
 *
 * @param folder of the service's state
 * @param told takes the line that says for how long it waits
 */
export async function pauseAfterFailures(folder: string, told: (line: string) => void): Promise<void> {
  const now = uptime();
  const failed = (await readStarts(folder)).filter((at) => at <= now && now - at < RECENT_S);
  const pause = PAUSES_S[Math.min(failed.length, PAUSES_S.length - 1)] ?? 0;
  // Without a disk to write to, there are no pauses.
  await writeFile(fileIn(folder), JSON.stringify([...failed.slice(1 - PAUSES_S.length), now + pause])).catch(() => {});
  if (pause === 0) return;
  told(`start ${failed.length + 1} within ${RECENT_S / 60} min without an orderly stop; waiting ${pause} s`);
  await delay(pause * 1000);
}

/** The next start does not wait. */
export async function stoppedInOrder(folder: string): Promise<void> {
  await rm(fileIn(folder), { force: true });
}

/** Uptimes of the machine, in seconds; none after a failure to read them. */
async function readStarts(folder: string): Promise<number[]> {
  try {
    const starts: unknown = JSON.parse(await readFile(fileIn(folder), 'utf8'));
    return Array.isArray(starts) ? starts.filter((at) => typeof at === 'number') : [];
  } catch {
    return [];
  }
}
