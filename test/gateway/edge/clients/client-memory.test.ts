import { Readable, Writable } from 'node:stream';
import { beforeEach, expect, it } from 'vitest';
import { ConnectionMemory, unreadBytes, unsentBytes } from '../../../../src/gateway/edge/clients/client-memory.ts';
import { MemoryBudget } from '../../../../src/lib/memory-budget.ts';

const KIB = 1024;
let closed: string[];
beforeEach(() => {
  closed = [];
});

/** A connection that holds what it says. */
function connection(memory: MemoryBudget, address: string, name: string) {
  let held = 0;
  const reported = new ConnectionMemory(memory, address, { countHeld: () => held, destroy: () => closed.push(name) });
  return {
    hold(bytes: number) {
      held = bytes;
      reported.update(bytes);
    },
    /** Nobody has noticed yet that it holds less. */
    reads: () => {
      held = 0;
    },
    release: () => reported.release(),
  };
}

it('one client network holds half of the memory, and its greediest connection is closed', () => {
  const memory = new MemoryBudget(1000 * KIB);
  const other = connection(memory, '192.0.2.2', 'other');
  const [small, large] = [connection(memory, '192.0.2.1', 'small'), connection(memory, '192.0.2.1', 'large')];
  other.hold(450 * KIB);
  large.hold(300 * KIB);
  small.hold(200 * KIB);
  expect(closed).toEqual([]);
  small.hold(210 * KIB);
  expect(closed).toEqual(['large']);
});

it('the network with the most loses its greediest connection when all together hold too much', () => {
  const memory = new MemoryBudget(1000 * KIB);
  const other = connection(memory, '192.0.2.3', 'other');
  const greedy = ['a', 'b'].map((name) => connection(memory, '192.0.2.1', name));
  connection(memory, '192.0.2.2', 'single').hold(400 * KIB);
  for (const each of greedy) each.hold(240 * KIB);
  other.hold(200 * KIB);
  expect(closed).toEqual(['a']);
});

it('a connection that has been read by now stays open', () => {
  const memory = new MemoryBudget(1000 * KIB);
  const [read, unread] = [connection(memory, '192.0.2.1', 'read'), connection(memory, '192.0.2.1', 'unread')];
  read.hold(400 * KIB);
  read.reads();
  unread.hold(200 * KIB);
  unread.hold(400 * KIB);
  expect(closed).toEqual([]);
});

it('a closed connection holds nothing', () => {
  const memory = new MemoryBudget(1000 * KIB);
  for (let at = 0; at < 10; at++) {
    const each = connection(memory, '2001:db8::1', String(at));
    each.hold(400 * KIB);
    each.release();
  }
  expect(closed).toEqual([]);
});

it('pieces of one byte count with the memory that they take', () => {
  const [received, sent] = [new Readable({ read() {} }), new Writable({ write() {} })];
  for (let at = 0; at < 1000; at++) {
    received.push(Buffer.from('a'));
    sent.write(Buffer.from('a'));
  }
  expect(unreadBytes(received)).toBeGreaterThan(50_000);
  expect(unsentBytes(sent)).toBeGreaterThan(200_000);
  while (received.read() !== null);
  expect(unreadBytes(received)).toBe(0);
});
