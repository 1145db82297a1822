import { readlink, symlink } from 'node:fs/promises';
import { type FileOperations, nodeFiles } from '../lib/files/durable-write.ts';

/** The steps that an update makes on the disk; a test cuts the power between any two of them. */
export interface UpdateFiles extends FileOperations {
  /** Creates a symbolic link. */
  symlink(target: string, path: string): Promise<void>;
  readlink(path: string): Promise<string>;
}

export const diskFiles: UpdateFiles = { ...nodeFiles, symlink: (target, path) => symlink(target, path), readlink };

/** Points a symbolic link to another target: after a power cut it leads to the old one or the new one. */
export async function replaceLink(files: UpdateFiles, path: string, target: string, folder: string): Promise<void> {
  const next = `${path}.next`;
  await files.remove(next);
  await files.symlink(target, next);
  await files.rename(next, path);
  await files.syncFolder(folder);
}
