import { existsSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
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

/** The agent's data as the version before the update left them, in case the new one writes what that cannot read. */
export class DataCopy {
  /**
   * @param data the agent's data folder
   * @param copy the archive; it has this name only when it is complete
   */
  constructor(
    private readonly data: string,
    private readonly copy: string,
    private readonly files: UpdateFiles,
    private readonly run: Host['run'],
  ) {}

  /** Copies the files, unless an interrupted attempt has done so: the new version may have changed them since. */
  async keep(): Promise<void> {
    if (existsSync(this.copy)) return;
    const incoming = `${this.copy}.tmp`;
    await this.#sh(KEEP, incoming);
    await this.files.sync(incoming);
    await this.files.rename(incoming, this.copy);
    await this.files.syncFolder(dirname(this.copy));
  }

  /** Forgets the copy of an earlier update. */
  async forget(): Promise<void> {
    await this.files.remove(this.copy);
    await this.files.syncFolder(dirname(this.copy));
  }

  /** Brings the tunnels back if this version, the one before the update, cannot read them. The others stay beside them. */
  async restore(): Promise<void> {
    const { path, main, backup } = await readSavedTunnels(this.data);
    if (main.state !== 'unusable' && backup.state !== 'unusable') return;
    await this.#sh(RESTORE, this.copy, basename(path));
  }

  async #sh(script: string, archive: string, ...args: string[]): Promise<void> {
    const { uid, gid } = await stat(this.data);
    await this.run('sh', '-c', script, archive, this.data, String(uid), String(gid), ...args);
  }
}
