import { afterEach, beforeEach, expect, it } from 'vitest';

// By its address: the types of a browser are not those of the tests.
const { connectLive } = await import(new URL('../../../src/web/ui/live-connection.ts', import.meta.url).href);

/** Timers that are set, by their numbers; and what listens to the window. */
let timers: Map<number, () => void>;
let listeners: Map<string, () => void>;
let sources: Source[];

class Source extends EventTarget {
  isOpen = true;
  constructor(readonly url: string) {
    super();
    sources.push(this);
  }
  close(): void {
    this.isOpen = false;
  }
}

beforeEach(() => {
  timers = new Map();
  listeners = new Map();
  sources = [];
  let last = 0;
  Object.assign(globalThis, {
    EventSource: Source,
    window: {
      setTimeout: (work: () => void) => {
        timers.set(++last, work);
        return last;
      },
      clearTimeout: (timer: number) => void timers.delete(timer),
      addEventListener: (name: string, work: () => void) => void listeners.set(name, work),
      removeEventListener: (name: string) => void listeners.delete(name),
    },
  });
});
afterEach(() => {
  for (const name of ['EventSource', 'window']) Reflect.deleteProperty(globalThis, name);
});

it('a connection that comes back while it is asked whether to retry leaves one source and one timer', async () => {
  let answer = (_: boolean) => {};
  const connection = connectLive({
    path: '/page/events',
    on: {},
    shouldRetry: () =>
      new Promise((resolve) => {
        answer = resolve;
      }),
  });
  sources[0]?.dispatchEvent(new Event('error'));
  listeners.get('online')?.();
  sources[1]?.dispatchEvent(new Event('alive'));
  answer(true);
  await Promise.resolve();
  await Promise.resolve();
  expect(sources.map(({ isOpen }) => isOpen)).toEqual([false, true]);
  expect(timers.size).toBe(1);
  connection.close();
  expect([timers.size, sources[1]?.isOpen]).toEqual([0, false]);
});
