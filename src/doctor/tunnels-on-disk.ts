import { basename } from 'node:path';
import { backupOf } from '../agent/tunnels/durable-file.ts';
import { type FileContent, type TunnelFile, tunnelsIn } from '../agent/tunnels/tunnels-file.ts';
import { type Check, failed, ok, type Result } from './finding.ts';

type Good = Extract<FileContent, { state: 'good' }>;

/** Checks the file of the tunnels and its backup copy for damage. */
export function tunnelFileCheck(file: Promise<TunnelFile>): Check {
  return { name: 'tunnels-file', title: 'Tunnels on disk', run: async () => judge(await file) };
}

function judge({ path, main, backup, damaged }: TunnelFile): Result | Result[] {
  const kept = damaged.length > 0 ? `; set aside earlier: ${damaged.join(', ')}` : '';
  const { problem: copy } = problemOf(backupOf(path), backup);
  if (main.state === 'good') {
    const found = [ok(`${count(main.tunnels.length)} in ${path}${kept}`), ...unusable(path, main, backup)];
    return copy === null ? found : [...found, failed(copy, 'the next start replaces it; check dmesg for disk errors')];
  }
  const { problem } = problemOf(path, main);
  if (main.state === 'unusable') return failed(problem ?? path, null);
  if (backup.state === 'good') {
    const what = problem ?? `${path} is missing`;
    return failed(
      `${what}; its copy has ${count(backup.tunnels.length)}`,
      'the agent uses that copy at its next start and keeps the damaged file; check dmesg for disk errors',
    );
  }
  if (main.state === 'missing') return copy === null ? ok(`none yet${kept}`) : failed(copy, null);
  return failed(
    `${problem} and has no good copy`,
    `restore ${basename(path)} from a backup; the agent would start without tunnels and keep the damaged file`,
  );
}

function unusable(path: string, main: Good, backup: FileContent): Result[] {
  if (main.leftOut.length === 0) return [];
  const copied = tunnelsIn({ main, backup }).length - main.tunnels.length;
  const start = copied > 0 ? `takes ${count(copied)} from ${backupOf(path)}` : 'starts without these tunnels';
  const remedy = `correct it before the next start; otherwise the agent ${start} and keeps a copy of the file`;
  return [failed(`unusable tunnels in ${path}: ${main.leftOut.join('; ')}`, remedy)];
}

function problemOf(path: string, content: FileContent): { problem: string | null } {
  if (content.state === 'damaged') return { problem: `${path} is damaged (${firstLine(content.reason)})` };
  return { problem: content.state === 'unusable' ? content.reason : null };
}

function firstLine(text: string): string {
  return text.split('\n')[0] ?? '';
}

function count(tunnels: number): string {
  return `${tunnels} ${tunnels === 1 ? 'tunnel' : 'tunnels'}`;
}
