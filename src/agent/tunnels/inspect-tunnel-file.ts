import { readdir, readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { hasErrno, messageOf, OperatorError } from '../../lib/errors.ts';
import { backupOf, damagedIn } from './durable-file.ts';
import type { Tunnel } from './tunnel.ts';
import { mergeTunnels, tunnelsCodec } from './tunnel-store.ts';

/** Content of the tunnels' file or of its backup. */
export type FileContent =
  | { state: 'good'; tunnels: readonly Tunnel[]; leftOut: readonly string[] }
  | { state: 'missing' }
  | { state: 'damaged' | 'unusable'; reason: string };

/** The tunnels on the disk, read without changing anything. */
export interface TunnelFile {
  path: string;
  main: FileContent;
  backup: FileContent;
  /** Names of damaged files set aside. */
  damaged: readonly string[];
}

export async function readTunnelFile(path: string): Promise<TunnelFile> {
  const [main, backup, damaged] = await Promise.all([load(path), load(backupOf(path)), setAside(path)]);
  return { path, main, backup, damaged };
}

/** The tunnels an agent would start with. */
export function tunnelsIn({ main, backup }: Pick<TunnelFile, 'main' | 'backup'>): readonly Tunnel[] {
  const copy = backup.state === 'good' ? backup.tunnels : [];
  if (main.state === 'unusable') return [];
  if (main.state !== 'good') return copy;
  return main.leftOut.length === 0 ? main.tunnels : mergeTunnels(main.tunnels, copy);
}

async function load(path: string): Promise<FileContent> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return { state: 'missing' };
    const state = hasErrno(error, 'EIO') ? 'damaged' : 'unusable';
    return { state, reason: `cannot read ${path}: ${messageOf(error)}` };
  }
  try {
    const leftOut: string[] = [];
    const { tunnels } = tunnelsCodec.decode(text, (reason) => leftOut.push(reason));
    return { state: 'good', tunnels, leftOut };
  } catch (error) {
    return { state: error instanceof OperatorError ? 'unusable' : 'damaged', reason: messageOf(error) };
  }
}

async function setAside(path: string): Promise<string[]> {
  const names = await readdir(dirname(path)).catch(() => []); // reported elsewhere
  return damagedIn(names, path);
}
