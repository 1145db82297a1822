import { expect, it } from 'vitest';
import type { ConnectionCapture } from '../../../src/agent/inspector/connection-capture.ts';
import { Inspector } from '../../../src/agent/inspector/inspector.ts';
import { SteeredClock } from '../../support/steered-clock.ts';

const MINUTE = 60_000;

function setUp() {
  const clock = new SteeredClock();
  let capture: (() => ConnectionCapture) | null = null;
  let problem: Error | null = null;
  const inspector = new Inspector({
    clock,
    observe: async (_id, next) => {
      if (problem && next) throw problem;
      capture = next;
    },
  });
  const exchange = () => {
    const connection = capture?.();
    connection?.fromClient(Buffer.from('GET / HTTP/1.1\r\n\r\n'));
    connection?.toClient(Buffer.from('HTTP/1.1 204 No Content\r\n\r\n'));
    return connection !== undefined;
  };
  const fail = (error: Error | null) => {
    problem = error;
  };
  return { clock, inspector, exchange, fail, isObserved: () => capture !== null };
}

it('an inspection ends automatically, and what was captured is forgotten an hour later', async () => {
  const { clock, inspector, exchange, isObserved } = setUp();
  await inspector.switchOn('a', 15 * MINUTE);
  exchange();
  await clock.advance(14 * MINUTE);
  expect([isObserved(), inspector.until('a') !== null]).toEqual([true, true]);
  await clock.advance(MINUTE);
  expect([isObserved(), inspector.until('a'), exchange()]).toEqual([false, null, false]);
  await clock.advance(59 * MINUTE);
  expect(inspector.store.countOf('a')).toBe(1);
  await clock.advance(MINUTE);
  expect([inspector.store.countOf('a'), inspector.store.held]).toEqual([0, 0]);
});

it('switching on again moves the end, and keeps what was captured', async () => {
  const { clock, inspector, exchange } = setUp();
  await inspector.switchOn('a', MINUTE);
  exchange();
  await clock.advance(MINUTE / 2);
  await inspector.switchOn('a', MINUTE);
  await clock.advance(MINUTE / 2);
  expect(inspector.until('a')).not.toBeNull();
  await clock.advance(MINUTE / 2);
  expect(inspector.until('a')).toBeNull();
  await inspector.switchOn('a', 120 * MINUTE);
  await clock.advance(90 * MINUTE);
  expect(inspector.store.countOf('a')).toBe(1);
});

it('a tunnel that cannot be observed now is not inspected', async () => {
  const { inspector, fail, isObserved } = setUp();
  fail(new Error('busy'));
  await expect(inspector.switchOn('a', MINUTE)).rejects.toThrow('busy');
  expect([inspector.until('a'), isObserved()]).toEqual([null, false]);
  fail(null);
  await inspector.switchOn('a', MINUTE);
  expect(isObserved()).toBe(true);
});
