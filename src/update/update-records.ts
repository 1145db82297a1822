import { join } from 'node:path';
import { z } from 'zod';
import { hasErrno } from '../lib/errors.ts';
import { stage } from '../lib/files/durable-write.ts';
import { Place } from './installed-program.ts';
import { KeySet } from './release.ts';
import type { UpdateFiles } from './update-files.ts';

/** A point in time that survives a reboot, and clocks that jump within one. */
const Moment = z.object({
  /** Id of the boot. */
  boot: z.string(),
  /** Seconds since the boot. */
  uptime: z.number(),
  /** Milliseconds since 1970. */
  wall: z.number(),
});
export type Moment = z.infer<typeof Moment>;

/** What worked before an update, and has to work after it. */
const Before = z.object({
  online: z.boolean(),
  /** URLs of the tunnels that were online. */
  tunnels: z.array(z.string()),
  /** How many sessions agents had at the gateway of this machine. */
  sessions: z.int().nonnegative().default(0),
  /** Of several gateways, how many of them had one at that of this machine. */
  ownAgents: z.int().nonnegative().default(0),
  /** Checks of `doctor` that failed already. */
  failed: z.array(z.string()),
});
export type Before = z.infer<typeof Before>;

/** A gateway that uses a shared database. */
const Sharing = z.object({
  /** Its entry among those that serve together; null: it serves alone. */
  node: z.object({ id: z.string(), address: z.string() }).nullable(),
});
export type Sharing = z.infer<typeof Sharing>;

/** A version that is tried. The file exists only from the moment it is staged until the device keeps it or goes back. */
const Trial = z.object({
  version: z.literal(1),
  /**
   * `staged`: everything is on the disk; `trying`: the new version runs and is watched; `probation`: it is confirmed, but
   * goes back after crashes; `returning`: it was given up.
   */
  state: z.enum(['staged', 'trying', 'probation', 'returning']),
  from: z.string(),
  to: z.string(),
  /** What is switched: the watcher does not run from there. */
  place: Place,
  before: Before,
  /** How often it was tried: a power cut interrupts an attempt. */
  attempts: z.int().nonnegative(),
  /** When it was confirmed; null before. */
  since: Moment.nullable(),
  /** Why it was given up. */
  reason: z.string().nullable(),
  /** Whether the version before works again, as far as it does, and what was learned is in the history. */
  isJudged: z.boolean().default(false),
  /** Whether another gateway may have had its turn: then it is not the version's fault. */
  hasLostTurn: z.boolean().default(false),
  /** The gateway of this machine, if it uses a shared database; null: no gateway here uses one. */
  sharing: Sharing.nullable().default(null),
});
export type Trial = z.infer<typeof Trial>;

const Outcome = z.object({
  /** `kept`: it was given up, and stays, as going back would lose data. */
  result: z.enum(['confirmed', 'returned', 'kept']),
  from: z.string(),
  to: z.string(),
  reason: z.string().nullable(),
  at: z.iso.datetime(),
});
export type Outcome = z.infer<typeof Outcome>;

const Seen = z.object({ version: z.string(), released: z.string() });

/** What stays after an update. */
const History = z.object({
  version: z.literal(1),
  /** The newest release that was ever seen, by channel. */
  seen: z.record(z.string(), Seen),
  /** Versions that are not tried again, with the reason. */
  rejected: z.array(z.object({ version: z.string(), reason: z.string() })),
  /** How often a version was given up while the one before did not work either. */
  doubtful: z.record(z.string(), z.int()),
  last: Outcome.nullable(),
  /** The keys of the newest key set that a release has brought; null: those that came with the program. */
  keys: KeySet.nullable(),
});
export type History = z.infer<typeof History>;

const NO_HISTORY: History = { version: 1, seen: {}, rejected: [], doubtful: {}, last: null, keys: null };
const MAX_REJECTED = 50;

/** What is remembered of updates, in a folder that only root can read. */
export class UpdateRecords {
  constructor(
    private readonly folder: string,
    private readonly files: UpdateFiles,
  ) {}

  /** The trial under way; null: none, or its file is damaged. */
  trial(): Promise<Trial | null> {
    return this.#read(TRIAL_FILE, Trial);
  }

  async keepTrial(trial: Trial): Promise<void> {
    await this.#write(TRIAL_FILE, trial);
  }

  async endTrial(): Promise<void> {
    await this.files.remove(join(this.folder, TRIAL_FILE));
    await this.files.syncFolder(this.folder);
  }

  async history(): Promise<History> {
    return (await this.#read(HISTORY_FILE, History)) ?? NO_HISTORY;
  }

  async keepHistory(history: History): Promise<void> {
    await this.#write(HISTORY_FILE, { ...history, rejected: history.rejected.slice(-MAX_REJECTED) });
  }

  async #read<T>(name: string, schema: z.ZodType<T>): Promise<T | null> {
    try {
      const found = schema.safeParse(JSON.parse(await this.files.read(join(this.folder, name))));
      return found.success ? found.data : null;
    } catch (error) {
      if (hasErrno(error, 'ENOENT') || error instanceof SyntaxError) return null;
      throw error;
    }
  }

  async #write(name: string, content: object): Promise<void> {
    const path = join(this.folder, name);
    const temporary = await stage(path, `${JSON.stringify(content, null, 2)}\n`, 0o600, this.files);
    await this.files.rename(temporary, path);
    await this.files.syncFolder(this.folder);
  }
}

/** Names in the folder; units look for the first one. */
export const TRIAL_FILE = 'trial.json';
const HISTORY_FILE = 'history.json';
