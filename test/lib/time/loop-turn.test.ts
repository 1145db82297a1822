import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { hasTimeForWork, noteArrival, runInTurn } from '../../../src/lib/time/loop-turn.ts';

async function turnsPass(): Promise<void> {
  for (let turns = 0; turns < 4; turns++) await nextTurn();
}

it('work waits while connections arrive, and no longer, even if nothing asked for the turns in between', async () => {
  await turnsPass();
  expect(hasTimeForWork()).toBe(true);
  await turnsPass();
  noteArrival();
  expect(hasTimeForWork()).toBe(false);
  await turnsPass();
  expect(hasTimeForWork()).toBe(true);
});

it('what a task has begun with promises counts as its time, so that a turn stays short', async () => {
  await turnsPass();
  const begun: number[] = [];
  for (let number = 0; number < 8; number++)
    runInTurn(`owner ${number}`, async () => {
      await null;
      await null;
      begun.push(number);
      busy(4);
    });
  await new Promise<void>((resolve) => setImmediate(() => setImmediate(resolve)));
  expect(begun.length).toBeGreaterThan(0);
  expect(begun.length).toBeLessThan(8);
});

it('what agents ask comes first, and other work goes on while there is too much of it', async () => {
  await turnsPass();
  const begun: string[] = [];
  const task = (name: string) => () => {
    begun.push(name);
    busy(2);
  };
  for (let number = 0; number < 4; number++) runInTurn('network', task('handshake'));
  for (let number = 0; number < 40; number++) runInTurn(`agent ${number}`, task('request'), 'first');
  while (begun.length < 44) await nextTurn();
  expect(begun[0]).toBe('request');
  expect(begun.lastIndexOf('handshake')).toBeLessThan(begun.lastIndexOf('request'));
});

/** Takes so many milliseconds of processor time. */
function busy(ms: number): void {
  const began = process.cpuUsage();
  for (;;) {
    const { user, system } = process.cpuUsage(began);
    if (user + system > ms * 1000) return;
  }
}
