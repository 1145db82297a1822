import { expect, it } from 'vitest';
import { BoundedMap } from '../../src/lib/bounded-map.ts';

it('drops the entry that was set the longest ago when the map is full', () => {
  const map = new BoundedMap<string, number>(2);
  map.set('a', 1).set('b', 2).set('a', 3).set('c', 4);
  expect([...map]).toEqual([
    ['a', 3],
    ['c', 4],
  ]);
});
