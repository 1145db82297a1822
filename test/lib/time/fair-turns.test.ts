import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { expect, it } from 'vitest';
import { currentTurn, noteArrival, runInTurn } from '../../../src/lib/time/loop-turn.ts';
import { listening } from '../../support/loopback.ts';

const busy = (ms: number) => {
  for (const end = performance.now() + ms; performance.now() < end; );
};

/** Runs tasks of an owner; resolves with the turn of each. */
function turnsOf(owner: string, count: number, work = () => {}): Promise<number[]> {
  const turns: number[] = [];
  return new Promise((resolve) => {
    for (let at = 0; at < count; at++) {
      runInTurn(owner, () => {
        work();
        if (turns.push(currentTurn()) === count) resolve(turns);
      });
    }
  });
}

const mostInOne = (turns: number[]) => Math.max(...turns.map((turn) => turns.filter((other) => other === turn).length));

it('an owner with many tasks has a limited number of them in each turn, and others come between', async () => {
  const [many, few] = await Promise.all([turnsOf('many', 200), turnsOf('few', 2)]);
  expect(mostInOne(many)).toBeLessThanOrEqual(16);
  expect(Math.max(...few)).toBeLessThan(Math.max(...many));
});

it('owners with long tasks take turns, and each turn of the event loop ends in time', async () => {
  const owners = ['a', 'b', 'c'].map((owner) => turnsOf(owner, 4, () => busy(6)));
  const turns = (await Promise.all(owners)).flat();
  expect(mostInOne(turns)).toBe(1);
  expect(
    turns
      .toSorted((one, other) => one - other)
      .map((turn) => turns.indexOf(turn) % 4)
      .join(''),
  ).toBe('000111222333');
});

it('what a task asks for runs in a later turn', async () => {
  const turns: number[] = [];
  await new Promise<void>((resolve) => {
    const task = () => {
      turns.push(currentTurn());
      if (turns.length === 3) resolve();
      else runInTurn('one', task);
    };
    runInTurn('one', task);
  });
  expect(new Set(turns).size).toBe(3);
});

it('a crowd of new connections is accepted between two long tasks, not one connection after each', async () => {
  const server = createServer(noteArrival);
  await listening(server);
  let tasks = 0;
  const work = () => {
    tasks += 1;
    busy(20);
    if (server.listening) runInTurn('one', work);
  };
  runInTurn('one', work);
  const { port } = server.address() as AddressInfo;
  const clients = Array.from({ length: 100 }, () => connect(port, '127.0.0.1'));
  for (const _ of clients) await once(server, 'connection');
  server.close();
  expect(tasks).toBeLessThan(50);
  for (const client of clients) client.destroy();
});

it('tasks run although connections arrive all the time', async () => {
  let isDone = false;
  const arrive = () => {
    noteArrival();
    if (!isDone) setImmediate(arrive);
  };
  arrive();
  await turnsOf('one', 1);
  isDone = true;
});

it('work waits for connections that arrive, also when other work was asked for long before and not done', async () => {
  // An instance of its own: in this one's turns, what other tests left may be working.
  const own = '../../../src/lib/time/loop-turn.ts?own';
  const turns: typeof import('../../../src/lib/time/loop-turn.ts') = await import(/* @vite-ignore */ own);
  turns.noteArrival();
  expect(turns.hasTimeForWork()).toBe(false);
  for (let i = 0; i < 5; i++) await new Promise(setImmediate);
  busy(6);
  turns.noteArrival();
  expect(turns.hasTimeForWork()).toBe(false);
});
