import { expect, it } from 'vitest';
import { FairMemory } from '../../src/lib/fair-memory.ts';

/** Takes as much as an owner can have, byte for byte. */
function fill(memory: FairMemory, owner: string): number {
  let taken = 0;
  for (; memory.hasRoom(owner, 1); taken++) memory.take(owner, 1);
  return taken;
}

it('an owner leaves as much for others as it takes, and those leave some, too', () => {
  const memory = new FairMemory(1000);
  expect(['one', 'other', 'third'].map((owner) => fill(memory, owner))).toEqual([500, 250, 125]);
});

it('what an owner gives back can be taken again', () => {
  const memory = new FairMemory(1000);
  fill(memory, 'one');
  memory.release('one', 500);
  expect(fill(memory, 'other')).toBe(500);
  expect(fill(memory, 'one')).toBe(250);
});
