import { describe, expect, it } from 'vitest';
import { MemoryBudget } from '../../src/lib/memory-budget.ts';

function user() {
  return {
    times: 0,
    reclaim() {
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

it('reserved bytes take room in a share and in the whole, and nobody gives anything back for them', () => {
  const whole = new MemoryBudget(100);
  const [one, other] = [new MemoryBudget(50, whole), new MemoryBudget(80, whole)];
  const holder = user();
  other.report(holder, 30);
  one.reserve(45);
  expect([one.room, other.room]).toEqual([5, 25]);
  expect(one.tryReserve(6)).toBe(false);
  expect(one.tryReserve(5)).toBe(true);
  one.reserve(15);
  expect([one.room, other.room, holder.times]).toEqual([0, 5, 0]);
  one.release(65);
  expect([one.room, other.room]).toEqual([50, 50]);
});

it('an owner has one share, of half of the whole', () => {
  const whole = new MemoryBudget(100);
  whole.shareOf('one').report(user(), 40);
  expect([whole.held, whole.shareOf('one').room, whole.shareOf('other').room]).toEqual([40, 10, 50]);
});

describe('leavesRoom', () => {
  /** Takes as much as an owner can have, byte for byte. */
  function fill(memory: MemoryBudget, owner: string): number {
    const share = memory.shareOf(owner);
    let taken = 0;
    for (; share.leavesRoom(1); taken++) share.reserve(1);
    return taken;
  }

  it('an owner leaves as much for others as it takes, and those leave some, too', () => {
    const memory = new MemoryBudget(1000);
    expect(['one', 'other', 'third'].map((owner) => fill(memory, owner))).toEqual([500, 250, 125]);
  });

  it('what an owner gives back can be taken again', () => {
    const memory = new MemoryBudget(1000);
    fill(memory, 'one');
    memory.shareOf('one').release(500);
    expect(fill(memory, 'other')).toBe(500);
    expect(fill(memory, 'one')).toBe(250);
  });
});
