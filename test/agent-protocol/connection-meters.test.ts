import { expect, it } from 'vitest';
import { RecentBytes, RoundTrip } from '../../src/agent-protocol/connection-meters.ts';

/** Bytes in a millisecond of a transfer, and of small requests beside it. */
const BULK = 500;
const SMALL = 20;

function connection(roundTripMs: number): RecentBytes {
  const roundTrip = new RoundTrip();
  roundTrip.add(roundTripMs, 0);
  return new RecentBytes(roundTrip);
}

it('a transfer that a lost packet holds up still has its bytes on their way', () => {
  const [bulk, small] = [connection(100), connection(100)];
  for (let at = 0; at < 5_000; at++) {
    bulk.add(BULK, at);
    small.add(SMALL, at);
  }
  for (let at = 5_000; at < 5_700; at++) small.add(SMALL, at);
  expect(bulk.at(5_700)).toBe(100 * BULK);
  expect(small.at(5_700)).toBe(100 * SMALL);
});

it('a transfer that has ended is forgotten a second later, and two round trips', () => {
  for (const roundTripMs of [20, 100, 800]) {
    const bulk = connection(roundTripMs);
    for (let at = 0; at < 5_000; at++) bulk.add(BULK, at);
    const forgottenAt = 5_000 + 1_000 + 2 * Math.max(100, roundTripMs);
    expect([roundTripMs, bulk.at(forgottenAt)]).toEqual([roundTripMs, 0]);
  }
});
