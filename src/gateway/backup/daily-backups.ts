import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { createFolder } from '../../lib/files/durable-write.ts';
import type { Log } from '../../lib/log/log.ts';
import { type Clock, systemClock } from '../../lib/time/clock.ts';
import type { BackupPlan } from '../../settings/variable-kinds.ts';
import { TEMPORARY } from './backup-file.ts';

/** Often enough for a clock that was set, or a machine that slept. */
const LOOK_MS = 60_000;
const RETRY_MS = 1_800_000;
/** No backup takes so long. */
const LEFT_MS = 86_400_000;
const NAME = /^gateway-(\d{4}-\d\d-\d\dT\d\d)-(\d\d)-(\d\dZ)\.tar\.gz$/;

/** Makes a backup every day, and deletes the oldest. One that is missing, such as after an outage, is made at once. */
export class DailyBackups {
  readonly #stopped = new AbortController();
  #running: Promise<void> = Promise.resolve();
  /** When the newest was made; null: it is unknown. */
  #newest: number | null = null;

  constructor(
    private readonly options: {
      plan: BackupPlan;
      write: (file: string) => Promise<void>;
      log: Log;
      clock?: Clock;
      /** Unix milliseconds. */
      wallClock?: () => number;
    },
  ) {}

  start(): void {
    this.#running = this.#run();
  }

  /** Ends when the backup does that is being made. */
  async stop(): Promise<void> {
    this.#stopped.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { clock = systemClock } = this.options;
    const { signal } = this.#stopped;
    while (!signal.aborted) {
      const isDone = await this.#look();
      await clock.sleep(isDone ? LOOK_MS : RETRY_MS, signal).catch(() => {});
    }
  }

  /** @returns false when it has failed */
  async #look(): Promise<boolean> {
    const { plan, write, log, wallClock = Date.now } = this.options;
    const { folder, hour, keep } = plan;
    try {
      const now = wallClock();
      this.#newest ??= await newestIn(folder);
      // The clock may have been ahead.
      if (this.#newest >= lastDue(now, hour) && this.#newest <= now) return true;
      await createFolder(folder, 0o700);
      const file = join(folder, `gateway-${new Date(now).toISOString().slice(0, 19).replaceAll(':', '-')}Z.tar.gz`);
      await write(file);
      this.#newest = now;
      log.info({ file }, 'backup written');
      await deleteOld(folder, keep);
      return true;
    } catch (err) {
      log.error({ err, folder }, 'backup failed');
      return false;
    }
  }
}

/** The last time at which a backup was due. */
function lastDue(now: number, hour: number): number {
  const due = new Date(now);
  due.setHours(hour, 0, 0, 0);
  if (due.getTime() > now) due.setDate(due.getDate() - 1);
  return due.getTime();
}

async function backupsIn(folder: string): Promise<string[]> {
  return (await readdir(folder)).filter((name) => NAME.test(name)).sort();
}

async function newestIn(folder: string): Promise<number> {
  const names = await backupsIn(folder).catch(() => []);
  return Date.parse(names.at(-1)?.replace(NAME, '$1:$2:$3') ?? '') || 0;
}

/** Also what is left of a backup that a power cut has ended. */
async function deleteOld(folder: string, keep: number): Promise<void> {
  for (const name of (await backupsIn(folder)).slice(0, -keep)) await rm(join(folder, name), { force: true });
  for (const name of await readdir(folder)) {
    if (!name.startsWith(TEMPORARY)) continue;
    const { mtimeMs } = await stat(join(folder, name));
    if (Date.now() - mtimeMs > LEFT_MS) await rm(join(folder, name), { recursive: true, force: true });
  }
}
