import { expect, it } from 'vitest';
import { FairQueue } from '../../src/lib/fair-queue.ts';

function drained(queue: FairQueue<string>): string[] {
  const taken: string[] = [];
  for (let item = queue.take(); item !== undefined; item = queue.take()) taken.push(item);
  return taken;
}

it('lets the owners take turns, each with its oldest item', () => {
  const queue = new FairQueue<string>(10);
  for (const item of ['a1', 'a2', 'a3', 'b1', 'c1', 'c2']) queue.add(item.charAt(0), item);
  expect(queue.size).toBe(6);
  expect(drained(queue)).toEqual(['a1', 'b1', 'c1', 'a2', 'c2', 'a3']);
  expect([queue.size, queue.take()]).toEqual([0, undefined]);
});

it('takes the newest item of the owner with the most when it is full, and refuses one when all have as many', () => {
  const queue = new FairQueue<string>(4);
  for (const item of ['a1', 'a2', 'a3', 'a4']) expect(queue.add('a', item)).toBeNull();
  const lost = ['a5', 'b1', 'b2', 'b3', 'c1', 'd1', 'e1'].map((item) => queue.add(item.charAt(0), item));
  expect(lost).toEqual(['a5', 'a4', 'a3', 'b3', 'a2', 'b2', 'e1']);
  expect(drained(queue)).toEqual(['a1', 'b1', 'c1', 'd1']);
});
