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

it('promised bytes take room in a share and in the whole, and nobody gives anything up for them', () => {
  const whole = new MemoryBudget(100);
  const [one, other] = [new MemoryBudget(50, whole), new MemoryBudget(80, whole)];
  const holder = user();
  other.report(holder, 30);
  one.promise(45);
  expect([one.room, other.room]).toEqual([5, 25]);
  one.promise(20);
  expect([one.room, other.room, holder.times]).toEqual([0, 5, 0]);
  one.promise(-65);
  expect([one.room, other.room]).toEqual([50, 50]);
});
