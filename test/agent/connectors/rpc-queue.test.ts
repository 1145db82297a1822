import { expect, it } from 'vitest';
import { RpcQueue } from '../../../src/agent/connectors/rpc-queue.ts';
import { SteeredClock } from '../../support/steered-clock.ts';

/** A queue and calls that end when the test says so. */
function setUp() {
  const clock = new SteeredClock();
  const hung: string[] = [];
  const onHang = (error: Error) => {
    hung.push(error.message);
    queue.close(new Error('over'));
  };
  const queue = new RpcQueue(clock, onHang, 1);
  const started: string[] = [];
  const discarded: string[] = [];
  const answers = new Map<string, (result: string) => void>();
  const call = (what: string, urgent = false) =>
    queue.call(
      {
        what,
        deadlineMs: 1000,
        start: () => {
          started.push(what);
          return new Promise<string>((resolve) => answers.set(what, resolve));
        },
        discard: (result) => void discarded.push(result),
      },
      urgent,
    );
  return {
    clock,
    queue,
    hung,
    started,
    discarded,
    call,
    answer: (what: string) => answers.get(what)?.(`${what} done`),
  };
}

it('limits concurrent calls, and runs urgent ones first', async () => {
  const { call, started, answer } = setUp();
  const first = call('first');
  const second = call('second');
  const urgent = call('urgent', true);
  expect(started).toEqual(['first']);
  answer('first');
  expect(await first).toBe('first done');
  await expect.poll(() => started).toEqual(['first', 'urgent']);
  answer('urgent');
  await urgent;
  await expect.poll(() => started).toEqual(['first', 'urgent', 'second']);
  answer('second');
  await second;
});

it('counts a deadline from the start of its call', async () => {
  const { call, clock, answer } = setUp();
  const first = call('first');
  const second = call('second');
  await clock.advance(900);
  answer('first');
  await first;
  await clock.advance(900);
  answer('second');
  expect(await second).toBe('second done');
});

it('rejects calls waiting behind one without an answer, and discards a late answer', async () => {
  const { call, clock, hung, started, discarded, answer } = setUp();
  const results = Promise.allSettled([call('first'), call('second')]);
  await clock.advance(1000);
  expect((await results).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  expect(hung).toEqual(['first did not finish within 1 s']);
  expect(started).toEqual(['first']);
  answer('first');
  await expect.poll(() => discarded).toEqual(['first done']);
  await expect(call('third')).rejects.toThrow('over');
});

it('rejects a running call on close(), and discards its result', async () => {
  const { call, queue, discarded, answer } = setUp();
  const running = call('running');
  queue.close(new Error('lost'));
  await expect(running).rejects.toThrow('lost');
  answer('running');
  await expect.poll(() => discarded).toEqual(['running done']);
});
