import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { DailyBackups } from '../../../src/gateway/backup/daily-backups.ts';
import { silentLog } from '../../support/silent-log.ts';
import { SteeredClock } from '../../support/steered-clock.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const HOUR_MS = 3_600_000;

/** Local time, as the hour of the setting. */
const START = new Date(2026, 4, 10, 12, 30).getTime();

function begin(present: number[], write = async (file: string) => writeFileSync(file, '')) {
  const folder = join(temporaryFolder(), 'backups');
  if (present.length > 0) mkdirSync(folder);
  for (const time of present) writeFileSync(join(folder, nameAt(time)), '');
  const clock = new SteeredClock();
  const offset = START - clock.now();
  const wallClock = () => clock.now() + offset;
  const plan = { folder, hour: 3, keep: 3 };
  const backups = new DailyBackups({ plan, write, log: silentLog, clock, wallClock });
  backups.start();
  onTestFinished(() => backups.stop());
  const names = () => (readdirSync(folder, { encoding: 'utf8' }) as string[]).sort();
  return { clock, names, wallClock, folder };
}

function nameAt(time: number): string {
  return `gateway-${new Date(time).toISOString().slice(0, 19).replaceAll(':', '-')}Z.tar.gz`;
}

/** Lets minutes pass, each once everything is done that was due before. */
async function pass(clock: SteeredClock, minutes: number): Promise<void> {
  for (let passed = 0; passed < minutes; passed++) {
    while (clock.sleeping === 0) await setImmediate();
    await clock.advance(60_000);
  }
}

it('makes a backup each day at the hour, and keeps as many as it should', async () => {
  const first = START - 9 * HOUR_MS;
  const { clock, names } = begin([first]);
  await pass(clock, 2 * 1440);
  const days = [1, 2].map((day) => new Date(2026, 4, 10 + day, 3).getTime());
  await expect.poll(names).toEqual([first, ...days].map(nameAt));
  await pass(clock, 1440);
  await expect.poll(names).toEqual([...days, new Date(2026, 4, 13, 3).getTime()].map(nameAt));
});

it('makes up at once for a backup that is missing, and tries again after one that has failed', async () => {
  let fails = true;
  const { clock, names } = begin([START - 10 * HOUR_MS], async (file) => {
    if (fails) throw new Error('no room');
    writeFileSync(file, '');
  });
  await expect.poll(() => clock.delays).toEqual([1_800_000]);
  expect(names()).toHaveLength(1);
  fails = false;
  await clock.advance(1_800_000);
  await expect.poll(names).toEqual([START - 10 * HOUR_MS, START + HOUR_MS / 2].map(nameAt));
});

it('keeps files that it has not made', async () => {
  const folder = temporaryFolder();
  writeFileSync(join(folder, 'gateway-old.tar.gz'), '');
  const plan = { folder, hour: 3, keep: 1 };
  const backups = new DailyBackups({ plan, write: async (file) => writeFileSync(file, ''), log: silentLog });
  backups.start();
  await expect.poll(() => readdirSync(folder)).toHaveLength(2);
  await backups.stop();
  expect(readdirSync(folder)).toContain('gateway-old.tar.gz');
});
