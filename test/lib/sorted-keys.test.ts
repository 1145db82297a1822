import { expect, it } from 'vitest';
import { SortedKeys } from '../../src/lib/sorted-keys.ts';
import { seeded } from '../support/seeded.ts';

it('keys are in order after 10,000 additions and removals', () => {
  const next = seeded(1);
  const random = (end: number) => Math.floor(next() * end);
  const keys = new SortedKeys();
  const expected = new Set<string>();
  // Few enough to come twice, and enough for several pieces.
  const anyKey = () => `${random(7)}.${random(700)}`;
  for (let step = 0; step < 10_000; step += 1) {
    const key = anyKey();
    if (random(3) > 0) {
      keys.add(key);
      expected.add(key);
    } else {
      keys.delete(key);
      expected.delete(key);
    }
    if (step % 500 === 0 || step === 9_999) {
      const all = [...expected].sort();
      const bound = anyKey();
      expect([...keys.below(null)]).toEqual([...all].reverse());
      expect([...keys.below(bound)]).toEqual(all.filter((each) => each < bound).reverse());
      for (const start of ['', bound, '3.', '9'])
        expect([...keys.startingWith(start)]).toEqual(all.filter((each) => each.startsWith(start)));
    }
  }
  for (const key of expected) keys.delete(key);
  expect([...keys.below(null)]).toEqual([]);
});
