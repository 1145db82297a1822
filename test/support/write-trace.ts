import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Missing, programMissing } from './requirements.ts';

/** Why this machine cannot trace system calls; null when it can. */
export const NO_TRACE: Missing =
  programMissing('strace', '--version') ??
  (programMissing('strace', '-f', '-e', 'trace=fsync', 'true') && 'permission to trace is required');

/** A program's file operations in order. */
export type FileCall =
  | { call: 'open'; path: string; fd: number; create: boolean; truncate: boolean }
  | { call: 'write'; fd: number; bytes: Buffer; offset: number | null }
  | { call: 'truncate'; fd: number; size: number }
  | { call: 'sync'; fd: number }
  | { call: 'link' | 'rename'; from: string; to: string }
  | { call: 'remove'; path: string };

const CALLS = 'openat,write,pwrite64,ftruncate,fsync,fdatasync,link,linkat,rename,renameat,renameat2,unlink,unlinkat';
/** Longer than any single write; strace truncates the rest. */
const MAX_BYTES = 1_000_000;

/**
 * Runs a program to its end.
 *
 * @returns its successful calls, including those on private files
 * @throws Error when the program fails, or uses an unsupported call
 */
export function traceWrites(command: readonly string[]): FileCall[] {
  const folder = mkdtempSync(join(tmpdir(), 'trace-'));
  const output = join(folder, 'trace');
  try {
    const options = ['-f', '-qq', '-xx', '-s', String(MAX_BYTES), '-e', `trace=${CALLS}`, '-o', output];
    execFileSync('strace', [...options, ...command], { stdio: ['ignore', 'ignore', 'inherit'] });
    return joinLines(readFileSync(output, 'latin1')).flatMap(parse);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The lines without process ids; interrupted and resumed calls are joined. */
function joinLines(trace: string): string[] {
  const begun = new Map<string, string>();
  return trace.split('\n').flatMap((line) => {
    const [, pid = '', text = ''] = /^(\d+) +(.*)$/.exec(line) ?? [];
    const [, start] = /^(.*) <unfinished \.\.\.>$/.exec(text) ?? [];
    if (start !== undefined) {
      begun.set(pid, start);
      return [];
    }
    const [, rest] = /^<\.\.\. \w+ resumed>(.*)$/.exec(text) ?? [];
    return rest === undefined ? [text] : [(begun.get(pid) ?? '') + rest];
  });
}

function parse(line: string): FileCall[] {
  const [, name = '', parameters = '', result = ''] = /^(\w+)\((.*)\) += (-?\d+)/.exec(line) ?? [];
  if (name === '' || Number(result) < 0) return [];
  const texts = [...parameters.matchAll(/"((?:\\x[0-9a-f]{2})*)"/g)].map(([, hex = '']) => unhex(hex));
  const [path = '', other = ''] = texts.map((text) => text.toString());
  const numbers = parameters.replaceAll(/"[^"]*"/g, '').split(',');
  const fd = Number(numbers[0]);
  switch (name) {
    case 'openat':
      return [{ call: 'open', path, fd: Number(result), create: /O_CREAT/.test(line), truncate: /O_TRUNC/.test(line) }];
    case 'write':
    case 'pwrite64':
      return [
        {
          call: 'write',
          fd,
          bytes: written(texts[0], Number(result)),
          offset: name === 'write' ? null : Number(numbers[3]),
        },
      ];
    case 'ftruncate':
      return [{ call: 'truncate', fd, size: Number(numbers[1]) }];
    case 'fsync':
    case 'fdatasync':
      return [{ call: 'sync', fd }];
    case 'unlink':
    case 'unlinkat':
      return [{ call: 'remove', path }];
    default:
      return [{ call: name.startsWith('link') ? 'link' : 'rename', from: path, to: other }];
  }
}

const unhex = (hex: string) => Buffer.from(hex.replaceAll('\\x', ''), 'hex');

function written(bytes: Buffer | undefined, length: number): Buffer {
  if (bytes === undefined || bytes.length < length)
    throw new Error(`a single write of ${length} bytes is too long to trace`);
  return bytes.subarray(0, length);
}
