import { execFileSync } from 'node:child_process';
import { pbkdf2 } from 'node:crypto';
import { closeSync, constants, openSync, readFileSync, writeFileSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { createLog, LogOutput } from '../../../src/lib/log/log.ts';
import { LogTail } from '../../../src/lib/log/log-tail.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

let folder: string;
beforeEach(() => {
  folder = temporaryFolder();
});

/** A non-blocking pipe with a buffer of 64 KiB. */
async function pipe(): Promise<{ output: LogOutput; read: (bytes: number) => Promise<string> }> {
  const path = join(folder, 'pipe');
  execFileSync('mkfifo', [path]);
  const fd = openSync(path, constants.O_RDWR | constants.O_NONBLOCK);
  const reader = await open(path, 'r');
  onTestFinished(async () => {
    await reader.close();
    closeSync(fd);
  });
  return { output: new LogOutput(fd), read: (bytes) => readExactly(reader, bytes) };
}

async function readExactly(reader: FileHandle, bytes: number): Promise<string> {
  const all = Buffer.alloc(bytes);
  for (let at = 0; at < bytes; ) at += (await reader.read(all, at)).bytesRead;
  return all.toString();
}

const linesUpTo = (bytes: number) =>
  Array.from({ length: Math.floor(bytes / 128) }, (_, at) => `${`${at} grüezi `.padEnd(126, '.')}\n`);

it('LogOutput writes all lines complete and in order when the reader pauses', async () => {
  const { output, read } = await pipe();
  const lines = linesUpTo(200 * 1024);
  for (const line of lines) output.write(line);
  const text = lines.join('');
  expect(await read(Buffer.byteLength(text))).toBe(text);
});

it('LogOutput buffers at most 1 MiB while nothing is read, and writes later lines afterwards', async () => {
  const { output, read } = await pipe();
  const lines = linesUpTo(3 * 1024 * 1024);
  for (const line of lines) output.write(line);
  const kept = lines.slice(0, 1024 * 8).join('');
  expect(await read(1024 * 1024)).toBe(kept);
  output.write('later\n');
  expect(await read(6)).toBe('later\n');
});

it('flushSync writes the last lines once even when all threads are busy', async () => {
  const threads = Array.from({ length: 8 }, () => promisify(pbkdf2)('', '', 50_000, 64, 'sha512'));
  const path = join(folder, 'log');
  const fd = openSync(path, 'w');
  onTestFinished(() => closeSync(fd));
  const output = new LogOutput(fd);
  output.write('one\n');
  output.write('two\n');
  output.flushSync();
  expect(readFileSync(path, 'utf8')).toBe('one\ntwo\n');
  await Promise.all(threads);
  expect(readFileSync(path, 'utf8')).toBe('one\ntwo\n');
});

it('LogOutput does not throw when the file is not writable', async () => {
  const path = join(folder, 'read-only');
  writeFileSync(path, '');
  // Never closed: a write that is still pending would go to another test's socket, which got the same number.
  const fd = openSync(path, 'r');
  const output = new LogOutput(fd);
  const log = () => {
    output.write('a line\n');
    output.flushSync();
  };
  expect(log).not.toThrow();
  expect(log).not.toThrow();
});

it.each(['json', 'pretty'] as const)(
  'the %s format escapes control characters that clients have sent',
  async (format) => {
    const lines: string[] = [];
    const log = await createLog('info', format, { write: (line) => void lines.push(line) });
    const evil = 'a\u001b[2J\u009b31m\u007f\r\b\\u001b\\\u001b\u202e\u200b\u2028';
    log.info({ agent: evil, [evil]: 1, err: new Error(evil) }, 'agent online');
    const [text = ''] = lines;
    expect([...text].filter((character) => character !== '\n' && /[\p{Cc}\p{Cf}\p{Zl}]/u.test(character))).toEqual([]);
    expect(text).toContain('agent online');
    if (format === 'json') expect(JSON.parse(text)).toMatchObject({ agent: evil, err: { message: evil } });
  },
);

it.each(['json', 'pretty'] as const)('the tail of a %s log has its warnings and errors only', async (format) => {
  const tail = new LogTail();
  const written: string[] = [];
  const log = await createLog('debug', format, { write: (line) => void written.push(line) }, tail);
  log.debug('one');
  log.info('two');
  log.warn({ reason: 'timeout', token: 'hunter2' }, 'three');
  log.child({ part: 'gateway' }, { level: 'warn' }).error('four');
  expect(written).toHaveLength(4);
  expect(tail.lines).toMatchObject([
    { level: 'warn', msg: 'three', fields: { reason: 'timeout', token: '[masked]' } },
    { level: 'error', msg: 'four', fields: { part: 'gateway' } },
  ]);
});
