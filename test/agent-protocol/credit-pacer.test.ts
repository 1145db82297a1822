import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { CreditPacer } from '../../src/agent-protocol/credit-pacer.ts';

/** The SDK keeps no more credit than this. */
const WINDOW = 262_144;
const STEP_MS = 1;

beforeEach(() => vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }));
afterEach(() => vi.useRealTimers());

/** An agent that sends as much as its credit and the link allow, with a pacer at the other end. */
class Path {
  withheld = false;
  /** The agent has nothing to send. */
  idle = false;
  /** Milliseconds that data takes longer, as both ends are busy. */
  lag = 0;
  window = 0;
  received = 0;
  silent = false;
  /** Bytes in the agent's socket, waiting for the link. */
  queue = 0;
  longestQueue = 0;
  readonly room = Number.POSITIVE_INFINITY;
  readonly #credit: { at: number; bytes: number }[] = [];
  readonly #data: { at: number; bytes: number }[] = [];
  readonly #pacer: CreditPacer;

  /** @param rate bytes per millisecond */
  constructor(
    readonly roundTrip: number,
    private readonly rate: number,
  ) {
    this.#credit.push({ at: performance.now() + roundTrip / 2, bytes: WINDOW });
    this.#pacer = new CreditPacer(this, WINDOW, performance.now());
  }

  grant(bytes: number): void {
    this.#credit.push({ at: performance.now() + this.roundTrip / 2, bytes });
  }

  onSilence(): void {
    this.silent = true;
    this.#pacer.stop();
  }

  /** Lets time pass; returns the bytes that arrived. */
  run(ms: number): number {
    const before = this.received;
    for (let passed = 0; passed < ms && !this.silent; passed += STEP_MS) {
      vi.advanceTimersByTime(STEP_MS);
      this.#step(performance.now());
    }
    return this.received - before;
  }

  #step(now: number): void {
    while (this.#credit[0] && this.#credit[0].at <= now) {
      this.window = Math.min(WINDOW, this.window + (this.#credit.shift()?.bytes ?? 0));
      this.#send();
    }
    this.#send();
    const sent = Math.min(this.queue, this.rate * STEP_MS);
    this.queue -= sent;
    this.longestQueue = Math.max(this.longestQueue, this.queue);
    if (sent > 0) this.#data.push({ at: now + this.roundTrip / 2 + this.lag, bytes: sent });
    while (this.#data[0] && this.#data[0].at <= now) {
      const { bytes } = this.#data.shift() as { bytes: number };
      this.received += bytes;
      this.#pacer.receive(bytes, now);
      if (!this.withheld) this.#pacer.grant(now);
    }
  }

  #send(): void {
    if (this.idle) return;
    this.queue += this.window;
    this.window = 0;
  }
}

describe('a bulk stream', () => {
  it.each([
    [100, 30_000],
    [300, 10_000],
    [20, 12_500],
  ])('uses a link with a round trip of %i ms that carries %i bytes/ms', (roundTrip, rate) => {
    const path = new Path(roundTrip, rate);
    path.run(12 * roundTrip);
    path.longestQueue = 0;
    expect(path.run(20 * roundTrip) / (20 * roundTrip * rate)).toBeGreaterThan(0.9);
    expect(path.longestQueue).toBeLessThan(Math.max(0.5 * rate * roundTrip, WINDOW));
  });

  it('queues no more than a window on a link that a window fills', () => {
    const path = new Path(60, 2500);
    expect(path.run(3000) / (3000 * 2500)).toBeGreaterThan(0.9);
    expect(path.longestQueue).toBeLessThanOrEqual(WINDOW);
  });

  it('gets no credit while its receiver does not read', () => {
    const path = new Path(100, 30_000);
    path.run(2000);
    path.withheld = true;
    expect(path.run(2000)).toBeLessThan(4_194_304 + WINDOW);
    expect(path.silent).toBe(true);
  });

  it('does not get more credit than there is memory for', () => {
    const path = new Path(100, 30_000);
    Object.assign(path, { room: 600_000 });
    path.run(2000);
    path.withheld = true;
    expect(path.run(2000)).toBeLessThan(600_000 + WINDOW);
  });

  it('is not left with a window after both ends were busy', () => {
    const path = new Path(100, 30_000);
    path.lag = 100;
    path.run(5000);
    path.lag = 0;
    path.run(1000);
    expect(path.run(1000)).toBeGreaterThan(0.8 * 30_000 * 1000);
  });

  it('gets its speed back after credit was lost, because the agent had nothing to send', () => {
    const path = new Path(100, 30_000);
    path.run(2000);
    path.idle = true;
    path.run(200);
    path.idle = false;
    path.run(1500);
    expect(path.silent).toBe(false);
    expect(path.run(1000) / (1000 * 30_000)).toBeGreaterThan(0.8);
  });
});
