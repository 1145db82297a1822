import { describe, expect, it } from 'vitest';
import { parseBandwidth, SharedRate } from '../../src/lib/bandwidth.ts';
import { SteeredClock } from '../support/steered-clock.ts';

describe('a bandwidth', () => {
  it.each([
    ['2Mbit', { up: 250_000, down: 250_000 }],
    ['512 kbit/2Mbit', { up: 64_000, down: 250_000 }],
    ['0.5mbit/unlimited', { up: 62_500, down: null }],
    ['unlimited/1Gbit', { up: null, down: 125_000_000 }],
  ])('%s is read', (text, rates) => expect(parseBandwidth(text)).toEqual(rates));

  it.each(['', '2', '2MB', 'Mbit', '-2Mbit', '1/2', '2Mbit/2Mbit/2Mbit', 'unlimited', '1e9Mbit'])(
    '%j is refused',
    (text) => expect(() => parseBandwidth(text)).toThrow(/must be a rate such as 2Mbit/),
  );

  it.each(['1kbit', '0kbit', '101Gbit'])('%s is refused with the bounds', (text) =>
    expect(() => parseBandwidth(text)).toThrow('must be from 8kbit to 100Gbit'),
  );
});

describe('a rate that connections share', () => {
  /** A connection that wants as much as it can get, in pieces of `size`. */
  function greedy(rate: SharedRate, size = rate.turnBytes) {
    const connection = { passed: 0, stop: () => {} };
    const ask = () => {
      connection.stop = rate.take(size, () => {
        connection.passed += size;
        ask();
      });
    };
    ask();
    return connection;
  }

  it.each([8_000, 250_000, 12_500_000])('lets %d bytes pass in a second, also when timers are late', async (bytes) => {
    const clock = new SteeredClock();
    const one = greedy(new SharedRate(bytes, clock));
    for (let step = 0; step < 200; step += 1) {
      clock.skip(step % 7 === 0 ? 190 : 30);
      await clock.advance(0);
    }
    const seconds = (200 * 30 + 29 * 160) / 1000;
    expect(one.passed / (bytes * seconds)).toBeGreaterThan(0.95);
    expect(one.passed / (bytes * seconds)).toBeLessThan(1.05);
  });

  it('is shared in equal parts, and all of it goes to those that are left', async () => {
    const clock = new SteeredClock();
    const rate = new SharedRate(250_000, clock);
    const all = [greedy(rate), greedy(rate), greedy(rate), greedy(rate)];
    await clock.advance(4_000);
    for (const { passed } of all) expect(passed / 250_000).toBeCloseTo(1, 1);
    for (const { stop } of all.slice(1)) stop();
    const [{ passed: before } = { passed: 0 }] = all;
    await clock.advance(2_000);
    expect(((all[0]?.passed ?? 0) - before) / 500_000).toBeCloseTo(1, 1);
  });

  it('gives nothing for the time in which nobody asked', async () => {
    const clock = new SteeredClock();
    const rate = new SharedRate(250_000, clock);
    await clock.advance(60_000);
    const one = greedy(rate);
    expect(one.passed).toBeLessThanOrEqual(2 * rate.turnBytes);
  });
});
