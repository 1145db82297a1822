import { appendFileSync, readdirSync, readFileSync, renameSync, statSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { fileSink } from '../../../src/gateway/events/event-file.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { auditRow } from './audit-row.ts';

const { signal } = new AbortController();

function setUp(maxBytes?: number) {
  const folder = join(temporaryFolder(), 'events');
  const open = () => fileSink({ kind: 'file', name: 'audit' }, folder, maxBytes);
  const file = join(folder, 'audit.jsonl');
  const lines = (path = file) =>
    readFileSync(path, 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => (JSON.parse(line) as { event_id: string }).event_id);
  return { folder, file, open, lines };
}

it('appends a line for each event, in a file that only the gateway’s user can read', async () => {
  const { file, open, lines } = setUp();
  const sink = open();
  await sink.send([auditRow(1), auditRow(2)], signal);
  await sink.send([auditRow(3)], signal);
  expect(lines()).toEqual([1, 2, 3].map((n) => auditRow(n).id));
  expect(statSync(file).mode & 0o777).toBe(0o600);
});

it('has each event once after it was killed while it wrote', async () => {
  const { file, open, lines } = setUp();
  const batch = [auditRow(1), auditRow(2, 'long '.repeat(40_000)), auditRow(3)];
  await open().send(batch, signal);
  const whole = readFileSync(file).length;
  // In the last line, in the long one, behind the first one, and before anything.
  for (const cut of [1, 1000, whole - 250, whole]) {
    truncateSync(file, whole - cut);
    await open().send(batch, signal);
    expect(lines(), `${cut} bytes were missing`).toEqual(batch.map(({ id }) => id));
    await open().send(batch, signal);
    expect(readFileSync(file)).toHaveLength(whole);
  }
  appendFileSync(file, '{"event_id":"evt_9');
  await open().send([auditRow(4)], signal);
  expect(lines()).toHaveLength(4);
});

it('begins a new file when one is full, and keeps four old ones', async () => {
  const { folder, open, lines } = setUp(10);
  const sink = open();
  for (let n = 1; n <= 7; n++) await sink.send([auditRow(n)], signal);
  expect(readdirSync(folder).sort()).toEqual([
    'audit.1.jsonl',
    'audit.2.jsonl',
    'audit.3.jsonl',
    'audit.4.jsonl',
    'audit.jsonl',
  ]);
  expect(lines(join(folder, 'audit.4.jsonl'))).toEqual([auditRow(3).id]);
  expect(lines()).toEqual([auditRow(7).id]);
});

it('repeats no event after it was killed between two files', async () => {
  const { folder, file, open, lines } = setUp();
  await open().send([auditRow(1), auditRow(2)], signal);
  renameSync(file, join(folder, 'audit.1.jsonl'));
  await open().send([auditRow(2), auditRow(3)], signal);
  expect(lines()).toEqual([auditRow(3).id]);
});
