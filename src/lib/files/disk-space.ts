import { statfs } from 'node:fs/promises';

/** With less free space, the next write of the tunnels or of a certificate may fail. */
const MIN_FREE_BYTES = 8 * 1024 * 1024;

/** What is free on a disk, in words. */
export interface DiskSpace {
  readonly shown: string;
  /** What there is nearly nothing of; null: there is enough. */
  readonly shortage: string | null;
}

/** @param path of a folder or file on the disk */
export async function diskSpace(path: string): Promise<DiskSpace> {
  const { bavail, bsize, files, ffree } = await statfs(path);
  const free = bavail * bsize;
  const shown = free >= 1e9 ? `${(free / 1e9).toFixed(1)} GB` : `${Math.floor(free / 1e6)} MB`;
  if (free < MIN_FREE_BYTES) return { shown, shortage: `${shown} free` };
  return { shown, shortage: files > 0 && ffree === 0 ? 'no inode free' : null };
}

/** What to do about a disk without space. */
export const FREE_SPACE = 'free some space (df -h and df -i show the usage)';
