import { expect, it } from 'vitest';
import { RecentMap } from '../../src/lib/recent-map.ts';

it('forgets what was set longest ago', () => {
  const map = new RecentMap<string, number>(2);
  map.set('a', 1).set('b', 2).set('a', 3).set('c', 4);
  expect([...map]).toEqual([
    ['a', 3],
    ['c', 4],
  ]);
});
