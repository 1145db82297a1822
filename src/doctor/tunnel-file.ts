import { readdir, readFile } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import type { Tunnel } from '../agent/tunnels/tunnel.ts';
import { tunnelsCodec } from '../agent/tunnels/tunnel-store.ts';
import { hasErrno, messageOf, OperatorError } from '../lib/errors.ts';
import { type Check, failed, ok, type Result } from './finding.ts';

/** What is under the name of the tunnels' file, or of its copy. */
type Content =
  | { state: 'good'; tunnels: readonly Tunnel[] }
  | { state: 'missing' }
  | { state: 'damaged' | 'unusable'; reason: string };

/** The tunnels on the disk, read without changing anything there. */
export interface TunnelFile {
  path: string;
  main: Content;
  backup: Content;
  /** Names of damaged files that were set aside. */
  damaged: readonly string[];
}

/** @param path of `tunnels.json` */
export async function readTunnelFile(path: string): Promise<TunnelFile> {
  const [main, backup, damaged] = await Promise.all([load(path), load(`${path}.bak`), setAside(path)]);
  return { path, main, backup, damaged };
}

/** The tunnels that an agent would start with. */
export function tunnelsIn({ main, backup }: TunnelFile): readonly Tunnel[] {
  if (main.state === 'good') return main.tunnels;
  return main.state !== 'unusable' && backup.state === 'good' ? backup.tunnels : [];
}

/** Damage in the tunnels' file and in the copy before it. */
export function tunnelFileCheck(file: Promise<TunnelFile>): Check {
  return { name: 'tunnels-file', title: 'Tunnels on disk', run: async () => judge(await file) };
}

function judge({ path, main, backup, damaged }: TunnelFile): Result | Result[] {
  const kept = damaged.length > 0 ? `; set aside earlier: ${damaged.join(', ')}` : '';
  const { problem: copy } = problemOf(`${path}.bak`, backup);
  if (main.state === 'good') {
    const found = ok(`${count(main.tunnels.length)} in ${path}${kept}`);
    return copy === null ? found : [found, failed(copy, 'the next change replaces it; look at dmesg for disk errors')];
  }
  const { problem } = problemOf(path, main);
  if (main.state === 'unusable') return failed(problem ?? path, null);
  if (backup.state === 'good') {
    const what = problem ?? `${path} is missing`;
    return failed(
      `${what}; the copy before the last change has ${count(backup.tunnels.length)}`,
      'the agent uses that copy at its next start and keeps the damaged file; check the last change, and the disk',
    );
  }
  if (main.state === 'missing') return copy === null ? ok(`none yet${kept}`) : failed(copy, null);
  return failed(
    `${problem}, and there is no good copy`,
    `restore ${basename(path)} from a backup; the agent would start without tunnels and keep the damaged file`,
  );
}

function problemOf(path: string, content: Content): { problem: string | null } {
  if (content.state === 'damaged') return { problem: `${path} is damaged (${firstLine(content.reason)})` };
  return { problem: content.state === 'unusable' ? content.reason : null };
}

async function load(path: string): Promise<Content> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return { state: 'missing' };
    const state = hasErrno(error, 'EIO') ? 'damaged' : 'unusable';
    return { state, reason: `${path} cannot be read: ${messageOf(error)}` };
  }
  try {
    return { state: 'good', tunnels: tunnelsCodec.decode(text).tunnels };
  } catch (error) {
    return { state: error instanceof OperatorError ? 'unusable' : 'damaged', reason: messageOf(error) };
  }
}

async function setAside(path: string): Promise<string[]> {
  const names = await readdir(dirname(path)).catch(() => []); // a folder that cannot be read is said elsewhere
  return names.filter((name) => name.startsWith(`${basename(path)}.damaged-`));
}

function firstLine(text: string): string {
  return text.split('\n')[0] ?? '';
}

function count(tunnels: number): string {
  return `${tunnels} ${tunnels === 1 ? 'tunnel' : 'tunnels'}`;
}
