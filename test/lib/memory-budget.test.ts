import { expect, it } from 'vitest';
import { MemoryBudget } from '../../src/lib/memory-budget.ts';

function user() {
  return {
    times: 0,
    shed() {
      this.times += 1;
    },
  };
}

it('the user with the most bytes gives some up when a user takes more than is left', () => {
  const budget = new MemoryBudget(100);
  const [small, large] = [user(), user()];
  budget.report(large, 70);
  budget.report(small, 30);
  expect([small.times, large.times]).toEqual([0, 0]);
  budget.report(small, 31);
  expect([small.times, large.times]).toEqual([0, 1]);
  budget.report(large, 0);
  budget.report(small, 100);
  expect([small.times, large.times]).toEqual([0, 1]);
});

it('the share with the most bytes gives some up when the whole is used up, not the largest user', () => {
  const whole = new MemoryBudget(100);
  const [crowd, single] = [new MemoryBudget(90, whole), new MemoryBudget(90, whole)];
  const [one, other, alone] = [user(), user(), user()];
  crowd.report(one, 30);
  crowd.report(other, 31);
  single.report(alone, 40);
  expect([one.times, other.times, alone.times]).toEqual([0, 1, 0]);
});
