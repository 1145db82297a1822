import { existsSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { readSavedTunnels } from '../agent/offline/saved-tunnels.ts';
import type { Host } from '../service/host.ts';
import type { UpdateFiles } from './update-files.ts';

/**
 * Commands of root in a folder of another user, who could have put links there: what works in it runs as that user.
 * $0: the copy, $1: the folder, $2: its user, $3: its group
 */
const AS_OWNER = 'setpriv --reuid="$2" --regid="$3" --clear-groups --no-new-privs';
const KEEP = `umask 077 && ${AS_OWNER} tar -C "$1" --exclude=./lock --exclude=./gateway -cf - . > "$0"`;
/** Each file is copied before it is replaced, so that an interruption loses none. $4: the name of the first one */
const RESTORE = `cd /
for name in "$4" "$4.bak"; do
  ${AS_OWNER} sh -c '[ ! -e "$0" ] || cp -p "$0" "$0.newer"' "$1/$name" &&
  if tar -tf "$0" "./$name" > /dev/null 2>&1; then ${AS_OWNER} tar -C "$1" -xf - "./$name" < "$0"
  else ${AS_OWNER} rm -f "$1/$name"; fi || exit 1
done
sync`;

/** A file with a copy; it has its name only when it is complete. */
export class Archive {
  constructor(
    readonly path: string,
    private readonly files: UpdateFiles,
  ) {}

  get isThere(): boolean {
    return existsSync(this.path);
  }

  /** Makes it, unless it is there. @param write writes it to another name */
  async make(write: (incoming: string) => Promise<void>): Promise<void> {
    if (this.isThere) return;
    const incoming = `${this.path}.tmp`;
    await write(incoming);
    await this.files.sync(incoming);
    await this.files.rename(incoming, this.path);
    await this.files.syncFolder(dirname(this.path));
  }

  async forget(): Promise<void> {
    await this.files.remove(this.path);
    await this.files.syncFolder(dirname(this.path));
  }
}

/** The agent's data as the version before the update left them, in case the new one writes what that cannot read. */
export class DataCopy {
  /**
   * @param data the agent's data folder
   */
  constructor(
    private readonly data: string,
    private readonly archive: Archive,
    private readonly run: Host['run'],
  ) {}

  /** Copies the files, unless an interrupted attempt has done so: the new version may have changed them since. */
  async keep(): Promise<void> {
    await this.archive.make((incoming) => inFolder(this.data, KEEP, incoming, [], this.run));
  }

  /** Forgets the copy of an earlier update. */
  async forget(): Promise<void> {
    await this.archive.forget();
  }

  /** Brings the tunnels back if this version, the one before the update, cannot read them. The others stay beside them. */
  async restore(): Promise<void> {
    const { path, main, backup } = await readSavedTunnels(this.data);
    if (main.state !== 'unusable' && backup.state !== 'unusable') return;
    await inFolder(this.data, RESTORE, this.archive.path, [basename(path)], this.run);
  }

  /** Unknown members of the tunnels stay, and a file that cannot be read goes back. */
  async obstacle(): Promise<null> {
    return null;
  }

  /** What the agent is told meanwhile stays in any case. */
  async release(): Promise<void> {}
}

/** Runs a script with {@link AS_OWNER} in a folder. */
async function inFolder(
  folder: string,
  script: string,
  archive: string,
  args: readonly string[],
  run: Host['run'],
): Promise<void> {
  const { uid, gid } = await stat(folder);
  await run('sh', '-c', script, archive, folder, String(uid), String(gid), ...args);
}

const DATABASE = 'gateway.db';
/** As the gateway's store knows it; see `holdDuringTrial` there. */
const MARK = 'update-trial';
/** It comes first: from then on, the gateway accepts no changes, whichever version is started by a power cut. */
const HOLD = `${AS_OWNER} sh -c 'cd "$0" && : > ${MARK} && sync ${MARK} . && rm -f gateway.db.newer gateway.db.newer-wal' "$1"`;
const RELEASE = `${AS_OWNER} sh -c 'cd "$0" && rm -f ${MARK} && sync .' "$1"`;
const KEEP_DATABASE = `umask 077 && ${AS_OWNER} sh -c 'cd "$0" && exec tar -cf - gateway.db $(ls gateway.db-wal 2> /dev/null)' "$1" > "$0"`;
/** The newer database stays beside it. The old one is complete on the disk before it replaces that. */
const RESTORE_DATABASE = `${AS_OWNER} sh -ec 'cd "$0"
rm -rf restoring && mkdir -m 700 restoring && tar -C restoring -xf -
sync restoring/*
[ -e gateway.db.newer ] || ! ln gateway.db gateway.db.newer || [ ! -e gateway.db-wal ] || cp gateway.db-wal gateway.db.newer-wal
rm -f gateway.db-wal gateway.db-shm
mv restoring/* .
rmdir restoring && sync .' "$1" < "$0"`;
const REMOVE_NEWER = `${AS_OWNER} sh -c 'cd "$0" && rm -f gateway.db.newer gateway.db.newer-wal gateway.db.incoming*' "$1"`;

/**
 * The gateway's database as the version before the update left it. While it may have to go back, the gateway makes others wait
 * with changes: nothing that it has answered with success is lost then.
 */
export class GatewayCopy {
  /**
   * @param data the gateway's folder
   */
  constructor(
    private readonly data: string,
    private readonly archive: Archive,
    private readonly run: Host['run'],
  ) {}

  async keep(): Promise<void> {
    if (!existsSync(join(this.data, DATABASE))) return;
    if (!this.#isHeld) {
      // Changes may have been made since. With a newer schema, they could not go back.
      await this.forget();
      if (await isNewer(this.data)) return;
    }
    await inFolder(this.data, HOLD, '', [], this.run);
    await this.archive.make((incoming) => inFolder(this.data, KEEP_DATABASE, incoming, [], this.run));
  }

  async forget(): Promise<void> {
    await this.archive.forget();
  }

  async obstacle(): Promise<string | null> {
    if (this.#isHeld) return null;
    if (!(await isNewer(this.data))) return null;
    return 'it has changed the schema of the database, and accepted changes since, which going back would lose';
  }

  async restore(): Promise<void> {
    // Interrupted before there was a copy, nothing has run since.
    if (this.#isHeld && this.archive.isThere)
      await inFolder(this.data, RESTORE_DATABASE, this.archive.path, [], this.run);
  }

  async release(): Promise<void> {
    if (this.#isHeld) await inFolder(this.data, RELEASE, '', [], this.run);
  }

  get #isHeld(): boolean {
    return existsSync(join(this.data, MARK));
  }
}

/**
 * A gateway's copy of the shared database as the version before the update left it. What has changed since is in the shared database,
 * and is fetched from there: nothing waits meanwhile.
 */
export class ReplicaCopy {
  /**
   * @param data the gateway's folder
   */
  constructor(
    private readonly data: string,
    private readonly archive: Archive,
    private readonly run: Host['run'],
  ) {}

  async keep(): Promise<void> {
    if (!existsSync(join(this.data, DATABASE))) return;
    await this.archive.make((incoming) => inFolder(this.data, KEEP_DATABASE, incoming, [], this.run));
  }

  async forget(): Promise<void> {
    await this.archive.forget();
  }

  async obstacle(): Promise<null> {
    return null;
  }

  /** Brings it back if this version, the one before the update, cannot read it. */
  async restore(): Promise<void> {
    if (!this.archive.isThere || !(await isNewer(this.data))) return;
    await inFolder(this.data, RESTORE_DATABASE, this.archive.path, [], this.run);
    // It is a copy: nobody needs it.
    await inFolder(this.data, REMOVE_NEWER, '', [], this.run);
  }

  async release(): Promise<void> {}
}

/** Whether a newer version has changed the schema of a gateway's database. */
async function isNewer(folder: string): Promise<boolean> {
  // A gateway that has never run has no database.
  if (!existsSync(join(folder, DATABASE))) return false;
  // Its code is not there where only agents run.
  const { hasNewerSchema } = await import('../gateway/offline/gateway-here.ts');
  return hasNewerSchema(folder);
}

/** The data of all services of the program. */
export class DataCopies {
  constructor(private readonly copies: readonly (DataCopy | GatewayCopy | ReplicaCopy)[]) {}

  async keep(): Promise<void> {
    for (const copy of this.copies) await copy.keep();
  }

  async forget(): Promise<void> {
    for (const copy of this.copies) await copy.forget();
  }

  async obstacle(): Promise<string | null> {
    for (const copy of this.copies) {
      const obstacle = await copy.obstacle();
      if (obstacle !== null) return obstacle;
    }
    return null;
  }

  async restore(): Promise<void> {
    for (const copy of this.copies) await copy.restore();
  }

  async release(): Promise<void> {
    for (const copy of this.copies) await copy.release();
  }
}
