import { expect, it, onTestFinished, vi } from 'vitest';
import { StreamQueue } from '../../../../src/gateway/edge/upstreams/stream-queue.ts';
import { StreamsExhausted } from '../../../../src/gateway/endpoints/online-endpoint.ts';
import { until } from '../../../support/until.ts';

/** A queue for an agent without a free stream until `free` is set, with the names that tried and that got one. */
function setUp(timeout = 60_000) {
  const queue = new StreamQueue(timeout);
  const scene = { free: false, asked: [] as string[] };
  const enter = (name: string, client = '192.0.2.1:1') => {
    let leave = () => {};
    const opened = new Promise<string>((resolve, reject) => {
      const open = () => {
        scene.asked.push(name);
        if (!scene.free) throw new StreamsExhausted();
        return name;
      };
      leave = queue.enter(client, open, resolve, reject);
    });
    return { opened, leave };
  };
  return { scene, enter };
}

function fakeTimers(): void {
  vi.useFakeTimers({ toFake: ['performance', 'setTimeout', 'clearTimeout'] });
  onTestFinished(() => void vi.useRealTimers());
}

it('polls for the first in the queue only, and serves the others in order', async () => {
  const { scene, enter } = setUp();
  const served: string[] = [];
  const places = ['first', 'second', 'third'].map((name) => enter(name));
  for (const { opened } of places) void opened.then((name) => served.push(name));
  expect(scene.asked).toEqual(['first']);
  scene.free = true;
  const late = enter('late');
  await late.opened;
  expect(served).toEqual(['first', 'second', 'third']);
  expect(scene.asked.filter((name) => name !== 'first')).toEqual(['second', 'third', 'late']);
});

it('skips an entry that has left the queue', async () => {
  const { scene, enter } = setUp();
  enter('first');
  enter('gone').leave();
  scene.free = true;
  await enter('last').opened;
  expect(scene.asked).not.toContain('gone');
});

it('polls again after everybody has left', async () => {
  fakeTimers();
  const { scene, enter } = setUp();
  enter('gone').leave();
  vi.advanceTimersByTime(50);
  const next = enter('next');
  scene.free = true;
  vi.advanceTimersByTime(50);
  await expect(Promise.race([next.opened, 'not served'])).resolves.toBe('next');
});

it('fails an entry after the timeout', async () => {
  const { enter } = setUp(0);
  await expect(enter('first').opened).rejects.toThrow(StreamsExhausted);
});

it('answers at once when nobody has been served for half of the timeout', async () => {
  fakeTimers();
  const { scene, enter } = setUp(60_000);
  enter('first');
  vi.advanceTimersByTime(31_000);
  await expect(enter('next').opened).rejects.toThrow(StreamsExhausted);
  enter('of another network', '192.0.2.2:1');
  expect(scene.asked).toContain('of another network');
});

it('serves client networks in turn, and those behind one that gets nothing', async () => {
  const { scene, enter } = setUp();
  const served: string[] = [];
  const join = (name: string, client: string) => void enter(name, client).opened.then((got) => served.push(got));
  for (const name of ['one', 'two', 'three']) join(name, '192.0.2.1:1');
  join('other', '192.0.2.2:1');
  expect(scene.asked).toEqual(['one', 'other']);
  scene.free = true;
  join('late', '192.0.2.3:1');
  await until(() => served.length === 5, 'all');
  expect(served.slice(0, 3).toSorted()).toEqual(['late', 'one', 'other']);
});
