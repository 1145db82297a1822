import { expect, it } from 'vitest';
import { poolShareOf } from '../../../src/traffic-policy/state/pool-share.ts';
import { ProcessorTime } from '../../../src/traffic-policy/state/processor-time.ts';
import { SteeredClock } from '../../support/steered-clock.ts';
import { RecordedTime } from '../recorded-time.ts';

/** Work of one payer, and how much of it has begun. */
function payer() {
  const time = new RecordedTime();
  const share = poolShareOf(time);
  const begun: number[] = [];
  const enter = async (ms: number) => {
    await share.enter(ms, time);
    begun.push(ms);
  };
  return { time, share, begun, enter };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

it('gives a payer two milliseconds of the thread pool at a time, in the order of arrival', async () => {
  const { share, begun, enter, time } = payer();
  const all = [0.5, 0.5, 1, 0.1, 1.5, 0.2].map(enter);
  await turn();
  expect(begun).toEqual([0.5, 0.5, 1]);
  share.leave(0.5);
  await turn();
  expect(begun).toEqual([0.5, 0.5, 1, 0.1]);
  share.leave(0.5);
  share.leave(1);
  await Promise.all(all);
  expect(begun).toEqual([0.5, 0.5, 1, 0.1, 1.5, 0.2]);
  expect(time.spentMs).toBeCloseTo(3.8);
});

it('lets work that takes longer than the share run on its own', async () => {
  const { share, begun, enter } = payer();
  const all = [0.1, 0.2, 5, 5].map(enter);
  await turn();
  expect(begun).toEqual([0.1, 0.2]);
  share.leave(0.1);
  share.leave(0.2);
  await turn();
  expect(begun).toEqual([0.1, 0.2, 5]);
  share.leave(5);
  await Promise.all(all);
});

it('does not let a payer wait for another one', async () => {
  const [one, other] = [payer(), payer()];
  await one.enter(2);
  await other.enter(2);
  expect(other.begun).toEqual([2]);
});

it('lets the networks of clients take turns, and charges each of them', async () => {
  const time = new ProcessorTime(0.25, new SteeredClock());
  const share = poolShareOf(time);
  const [stranger, other] = ['192.0.2.66', '198.51.100.9'].map((clientIp) => time.shareOf({ clientIp }));
  if (!stranger || !other) throw new Error('unreachable');
  const begun: string[] = [];
  const enter = async (of: ProcessorTime) => {
    await share.enter(2, of);
    begun.push(of.network);
  };
  const all = [...Array.from({ length: 600 }, () => enter(stranger)), enter(other)];
  for (let left = 0; !begun.includes(other.network); left++) {
    await turn();
    if (left > 0) share.leave(2);
  }
  expect(begun.length).toBeLessThan(5);
  expect([stranger.isSpent, other.isSpent]).toEqual([true, false]);
  while (begun.length < all.length) {
    share.leave(2);
    await turn();
  }
});
