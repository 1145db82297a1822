import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { hasTimeForWork, noteArrival } from '../../../src/lib/time/loop-turn.ts';

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
