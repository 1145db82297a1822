import { writeFileSync } from 'node:fs';
import { uptime } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { dataIn } from '../../src/lib/files/own-data.ts';
import { pauseAfterFailures, stoppedInOrder } from '../../src/service/start-pause.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

/** @returns how long the start has waited, in milliseconds */
async function start(folder: string, told: string[] = []): Promise<number> {
  const before = performance.now();
  await pauseAfterFailures(folder, (line) => void told.push(line));
  return performance.now() - before;
}

it('the first restart after a failure comes at once, the next one waits, and one after an orderly stop does not', async () => {
  const folder = temporaryFolder();
  const told: string[] = [];
  expect(await start(folder, told)).toBeLessThan(500);
  expect(await start(folder, told)).toBeLessThan(500);
  expect(told).toEqual([]);
  expect(await start(folder, told)).toBeGreaterThan(990);
  expect(told).toEqual(['start 3 within 10 min without an orderly stop; waiting 1 s']);
  await stoppedInOrder(folder);
  expect(await start(folder)).toBeLessThan(500);
});

it('failures of long ago or before the last boot, and a file that says nothing, cause no pause', async () => {
  const folder = temporaryFolder();
  for (const starts of [[uptime() + 50, uptime() + 60, uptime() + 70], [-700, -650, -640], 'none']) {
    writeFileSync(join(folder, '.starts.json'), JSON.stringify(starts));
    expect(await start(folder)).toBeLessThan(500);
  }
});

it('a folder with nothing else counts as one without data', async () => {
  const folder = temporaryFolder();
  await start(folder);
  expect(dataIn(folder)).toBe('none');
});

it('without a folder to write to, a start does not fail', async () => {
  await start('/nowhere/at/all');
});
