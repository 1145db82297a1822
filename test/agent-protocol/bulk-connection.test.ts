import { Duplex } from 'node:stream';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Channel, ChannelReceiver } from '../../src/agent-protocol/channel.ts';
import { Connection } from '../../src/agent-protocol/connection.ts';
import { LARGEST_WINDOW } from '../../src/agent-protocol/growing-window.ts';
import type { Role } from '../../src/agent-protocol/stream-ids.ts';
import { MemoryBudget } from '../../src/lib/memory-budget.ts';
import { settle, until } from '../support/until.ts';
import { MuxPeer } from './mux-peer.ts';

const MIB = 1_048_576;

/** Two ends of a path that delivers in order, each chunk after as many turns of the event loop as `delay` returns. */
function path(delay: () => number): [Duplex, Duplex] {
  const end = (other: () => Duplex): Duplex => {
    const waiting: Buffer[] = [];
    let isBusy = false;
    const deliver = async () => {
      isBusy = true;
      for (let chunk = waiting.shift(); chunk; chunk = waiting.shift()) {
        for (let turns = delay(); turns > 0; turns--) await new Promise(setImmediate);
        if (!other().destroyed) other().push(chunk);
      }
      isBusy = false;
    };
    return new Duplex({
      read() {},
      write(chunk: Buffer, _encoding, done) {
        waiting.push(chunk);
        if (!isBusy) void deliver();
        done();
      },
      destroy(error, done) {
        done(error);
        setImmediate(() => other().destroy());
      },
    });
  };
  const near: Duplex = end(() => far);
  const far: Duplex = end(() => near);
  return [near, far];
}

/** Sends numbered bytes, and checks those that it receives. */
class Counter implements ChannelReceiver {
  received = 0;
  isInOrder = true;
  ended = false;
  closed = false;
  lost: Error | undefined;
  moved = false;
  sent = 0;
  #left = 0;
  #ends = true;

  constructor(readonly channel: Channel) {
    channel.receiver = this;
  }

  send(bytes: number, ends = true): void {
    this.#left = bytes;
    this.#ends = ends;
    this.onDrain();
  }

  onDrain(): void {
    while (this.#left > 0) {
      const piece = numbered(this.sent, Math.min(this.#left, 65_536));
      this.sent += piece.length;
      this.#left -= piece.length;
      const room = this.channel.write(piece);
      if (this.#left === 0 && this.#ends) this.channel.end();
      if (!room) break;
    }
    this.moved ||= this.channel.sendsOnBulk;
  }

  onData(payload: Buffer): void {
    this.isInOrder &&= payload.equals(numbered(this.received, payload.length));
    this.received += payload.length;
    this.moved ||= this.channel.arrivesOnBulk;
  }

  onEnd(): void {
    this.ended = true;
  }

  onClosed(error?: Error): void {
    this.closed = true;
    this.lost = error;
  }
}

/** The bytes of a stream from an offset on: each fourth of 251 bytes differs, so that none can take another's place. */
function numbered(from: number, length: number): Buffer {
  const start = from % PATTERN_LENGTH;
  return PATTERN.subarray(start, start + length);
}
const PATTERN_LENGTH = 251 * 257;
const PATTERN = Buffer.from(Array.from({ length: 4 * PATTERN_LENGTH }, (_, at) => ((at % 251) * 7 + (at % 257)) % 256));

interface Ends {
  main: Connection;
  bulk: Connection;
  accepted: Counter[];
  reasons: string[];
}

/** A session of two connections, with their sockets, as the agent and the gateway have it. */
function session(delays: { main?: () => number; bulk?: () => number } = {}) {
  const once = () => 1;
  const mainPath = path(delays.main ?? once);
  const bulkPath = path(delays.bulk ?? once);
  const ends = (role: Role, at: 0 | 1): Ends => {
    const accepted: Counter[] = [];
    const reasons: string[] = [];
    const user = {
      accept: (channel: Channel) => void accepted.push(new Counter(channel)),
      ended: (reason: Error) => void reasons.push(reason.message),
    };
    const main = new Connection(mainPath[at], user, role);
    const bulk = new Connection(bulkPath[at], { ...user, ended() {} }, role);
    if (role === 'gateway') main.trust(new MemoryBudget(Number.POSITIVE_INFINITY));
    main.extend(LARGEST_WINDOW);
    for (const connection of [main, bulk]) connection.start();
    main.attachBulk(bulk);
    main.moveBulk();
    return { main, bulk, accepted, reasons };
  };
  const [agent, gateway] = [ends('agent', 0), ends('gateway', 1)];
  const open = () => {
    const counter = new Counter(gateway.main.channel());
    gateway.main.open(counter.channel);
    return counter;
  };
  return { agent, gateway, open, bulkSockets: bulkPath };
}

/** Keeps a small stream of the gateway's busy, so that bulk streams have company; returns how to stop it. */
function accompany({ gateway, agent, open }: ReturnType<typeof session>): () => void {
  const small = open();
  small.channel.write(Buffer.from('x'));
  const timer = setInterval(() => {
    small.channel.write(Buffer.from('x'));
    agent.accepted[0]?.channel.write(Buffer.from('x'));
  }, 1);
  expect(gateway.reasons).toEqual([]);
  return () => clearInterval(timer);
}

describe('a session with a connection for bulk', () => {
  it('carries all bytes of streams that move there, in order, whatever arrives first', async () => {
    let seed = 1;
    const random = () => {
      seed = (seed * 48_271) % 2_147_483_647;
      return seed;
    };
    const scenario = fc.record({
      seed: fc.integer({ min: 1, max: 2_147_483_646 }),
      main: fc.integer({ min: 1, max: 40 }),
      bulk: fc.integer({ min: 1, max: 40 }),
      up: fc.array(fc.integer({ min: 1, max: 6 * MIB }), { minLength: 1, maxLength: 2 }),
      down: fc.array(fc.integer({ min: 1, max: 6 * MIB }), { minLength: 1, maxLength: 2 }),
    });
    let moved = 0;
    await fc.assert(
      fc.asyncProperty(scenario, async (one) => {
        seed = one.seed;
        const both = session({ main: () => random() % one.main, bulk: () => random() % one.bulk });
        const { agent, gateway, open } = both;
        const stop = accompany(both);
        await until(() => agent.accepted.length === 1, 'the small stream');
        const streams: { near: Counter; far: Counter; up: number; down: number }[] = [];
        for (let at = 0; at < Math.max(one.up.length, one.down.length); at++) {
          const near = open();
          near.channel.write(Buffer.alloc(0));
          const [up, down] = [one.up[at] ?? 1, one.down[at] ?? 1];
          near.send(up);
          await until(() => agent.accepted.length === at + 2, 'the stream');
          const far = agent.accepted[at + 1] as Counter;
          far.send(down);
          streams.push({ near, far, up, down });
        }
        await until(() => streams.every(({ near, far }) => near.closed && far.closed), 'the streams');
        stop();
        for (const { near, far, up, down } of streams) {
          expect([near.received, far.received]).toEqual([down, up]);
          expect([near.isInOrder, far.isInOrder, near.ended, far.ended]).toEqual([true, true, true, true]);
          expect([near.lost, far.lost]).toEqual([undefined, undefined]);
          if (near.moved) moved += 1;
        }
        expect([...agent.reasons, ...gateway.reasons]).toEqual([]);
        gateway.main.close(new Error('over'));
      }),
      { numRuns: 12 },
    );
    expect(moved).toBeGreaterThan(0);
  });

  it('leaves a bulk stream where it is as long as it has no company', async () => {
    const { agent, open } = session();
    const near = open();
    near.send(4 * MIB);
    await until(() => near.channel.closed || (agent.accepted[0]?.ended ?? false), 'the stream');
    expect(near.moved).toBe(false);
    expect(agent.accepted[0]?.received).toBe(4 * MIB);
  });

  it('delivers what was sent before a reset, however slow that connection is', async () => {
    const both = session({ bulk: () => 30 });
    const { agent, open } = both;
    const stop = accompany(both);
    const near = open();
    near.send(3 * MIB, false);
    await until(() => near.sent === 3 * MIB && near.channel.memory === 0, 'the last bytes');
    near.channel.abort();
    const far = () => agent.accepted.find(({ channel }) => channel.id === near.channel.id);
    await until(() => far()?.closed === true, 'the reset');
    stop();
    expect(near.moved).toBe(true);
    expect(far()).toMatchObject({ received: 3 * MIB, isInOrder: true, ended: false });
  });

  it('loses only the streams on the connection for bulk when that is lost, and can get another one', async () => {
    const both = session();
    const { agent, gateway, open, bulkSockets } = both;
    const stop = accompany(both);
    const [bulk, waiting] = [open(), open()];
    waiting.channel.write(Buffer.from('hello'));
    bulk.send(64 * MIB);
    await until(() => bulk.moved, 'the move');
    bulkSockets[0].destroy();
    const atAgent = agent.accepted.find(({ channel }) => channel.id === bulk.channel.id);
    await until(() => bulk.closed && atAgent?.closed === true, 'the loss');
    expect(bulk.lost?.message).toMatch(/lost|reset/);
    expect([waiting.closed, agent.reasons, gateway.reasons]).toEqual([false, [], []]);
    const [near, far] = path(() => 1);
    for (const [{ main }, socket, role] of [
      [agent, near, 'agent'],
      [gateway, far, 'gateway'],
    ] as const) {
      const connection = new Connection(socket, { accept() {}, ended() {} }, role);
      connection.start();
      main.attachBulk(connection);
      main.moveBulk();
    }
    const next = open();
    next.send(4 * MIB);
    await until(() => next.channel.needsBulk, 'the move to the new connection');
    await until(() => agent.accepted.at(-1)?.ended ?? false, 'the stream');
    expect(agent.accepted.at(-1)).toMatchObject({ received: 4 * MIB, isInOrder: true });
    stop();
  });

  it('ends both connections when the first one ends', async () => {
    const { agent, gateway, bulkSockets } = session();
    agent.main.close(new Error('over'));
    await until(() => bulkSockets.every(({ destroyed }) => destroyed), 'the end of the other');
    expect([agent.reasons, gateway.reasons.length]).toEqual([['over'], 1]);
  });
});

/** A gateway's end whose two connections a test drives frame by frame. */
function driven(budget = new MemoryBudget(Number.POSITIVE_INFINITY), accept: (channel: Channel) => void = () => {}) {
  const paths = [path(() => 1), path(() => 1)] as const;
  const ended: string[] = [];
  const user = { accept, ended: (reason: Error) => void ended.push(reason.message) };
  const [main, bulk] = paths.map(([near]) => new Connection(near, user)) as [Connection, Connection];
  main.trust(budget);
  main.extend(LARGEST_WINDOW);
  for (const connection of [main, bulk]) connection.start();
  main.attachBulk(bulk);
  const [first, second] = paths.map(([, far]) => new MuxPeer(far)) as [MuxPeer, MuxPeer];
  const open = () => {
    const counter = new Counter(main.channel());
    main.open(counter.channel);
    return counter;
  };
  const move = (id: number) => {
    first.send.moved(id);
    first.flush();
  };
  return { main, bulk, first, second, open, move, ended };
}

describe('what streams of the peer hold on the connection for bulk', () => {
  const accept = (channel: Channel) => channel.pause();

  it('counts for the session, and no longer once that connection has ended', async () => {
    const budget = new MemoryBudget(MIB);
    const { main, bulk, first, second, ended } = driven(budget, accept);
    first.sendData(3, Buffer.alloc(150_000), { syn: true });
    second.sendData(3, Buffer.alloc(200_000), { syn: true });
    await until(() => budget.held === 350_000, 'both are counted');
    bulk.close(new Error('over'));
    await until(() => budget.held === 150_000, 'one is counted');
    main.close(new Error('over, too'));
    expect([budget.held, ended]).toEqual([0, ['over', 'over, too']]);
  });

  it('is counted if it came before the connection belonged to the session', async () => {
    const budget = new MemoryBudget(MIB);
    const [near, far] = path(() => 1);
    const late = new Connection(near, { accept, ended() {} });
    late.start();
    new MuxPeer(far).sendData(3, Buffer.alloc(10_000), { syn: true });
    await settle();
    const { main, first } = driven(budget, accept);
    main.attachBulk(late);
    first.sendData(3, Buffer.alloc(100_000), { syn: true });
    await until(() => budget.held === 110_000, 'both are counted');
  });

  it('ends that connection beyond the limit, if it holds the most', async () => {
    const { first, second, main, ended } = driven(new MemoryBudget(300_000), accept);
    first.sendData(3, Buffer.alloc(150_000), { syn: true });
    second.sendData(3, Buffer.alloc(200_000), { syn: true });
    await until(() => ended.length > 0, 'the end');
    expect(ended).toEqual(['memory limit reached']);
    expect(main.isSilent || first.socket.destroyed).toBe(false);
  });
});

describe('data on the connection for bulk', () => {
  it.each([
    ['data', (peer: MuxPeer) => peer.sendData(2, numbered(10, 90), { fin: true }), 100, undefined],
    ['an end', (peer: MuxPeer) => peer.sendData(2, '', { fin: true }), 10, undefined],
    ['a reset', (peer: MuxPeer) => peer.sendReset(2), 10, 'stream reset by the peer'],
  ])('waits until the stream has moved: %s', async (_what, send, received, lost) => {
    const { first, second, open, move, ended } = driven();
    const stream = open();
    stream.channel.write(Buffer.from('x'));
    stream.channel.end();
    await settle();
    send(second);
    await settle();
    first.sendData(2, numbered(0, 10));
    await settle();
    expect([stream.received, stream.closed]).toEqual([10, false]);
    move(2);
    await until(() => stream.closed, 'the end');
    expect(stream).toMatchObject({ received, isInOrder: true, ended: lost === undefined });
    expect(stream.lost?.message).toBe(lost);
    expect(ended).toEqual([]);
  });

  it('of a stream that closes while it waits is dropped, and what follows arrives', async () => {
    const { second, open, move, ended } = driven();
    const [one, other] = [open(), open()];
    for (const { channel } of [one, other]) channel.write(Buffer.from('x'));
    move(other.channel.id);
    await settle();
    second.sendData(one.channel.id, numbered(0, 100));
    second.sendData(other.channel.id, numbered(0, 100));
    await settle();
    expect(other.received).toBe(0);
    one.channel.abort();
    await until(() => other.received === 100, 'the other stream');
    expect([one.received, ended]).toEqual([0, []]);
  });

  it('counts towards the window of its stream', async () => {
    const { second, open, move, ended } = driven();
    const stream = open();
    stream.channel.write(Buffer.from('x'));
    stream.channel.pause();
    move(stream.channel.id);
    await settle();
    second.sendData(stream.channel.id, Buffer.alloc(300_000));
    await until(() => ended.length > 0, 'the end');
    expect(ended).toEqual(['more data than the window of the stream allows']);
  });

  it.each([
    ['data on the first connection after the move', 'moved elsewhere', 0],
    ['a stream opened on the connection for bulk', 'not allowed', 1],
  ])('%s ends that connection', async (_what, message, on) => {
    const { first, second, open, move, ended } = driven();
    const stream = open();
    stream.channel.write(Buffer.from('x'));
    await settle();
    move(2);
    if (on === 0) first.sendData(2, 'more');
    else second.sendData(4, 'more', { syn: true });
    await until(() => ended.length > 0, 'the end');
    expect(ended[0]).toContain(message);
  });

  it('ends streams that move when there is no such connection any more, and no others', async () => {
    const { bulk, first, open, move, ended } = driven();
    const [one, other] = [open(), open()];
    for (const { channel } of [one, other]) channel.write(Buffer.from('x'));
    bulk.close(new Error('lost'));
    await settle();
    move(one.channel.id);
    await until(() => one.closed, 'its end');
    first.sendData(other.channel.id, numbered(0, 5));
    await until(() => other.received === 5, 'the other stream');
    await settle();
    expect(first.frames).toContainEqual(expect.objectContaining({ kind: 'reset', id: one.channel.id }));
    expect(ended).toEqual(['lost']);
  });

  it('hostile frames on both connections end at most these', async () => {
    const frame = fc.record({
      on: fc.integer({ min: 0, max: 1 }),
      id: fc.integer({ min: 1, max: 9 }),
      kind: fc.constantFrom('data', 'moved', 'reset', 'credit', 'bytes'),
      length: fc.integer({ min: 0, max: 2000 }),
      syn: fc.boolean(),
      fin: fc.boolean(),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(frame, { maxLength: 40 }), async (frames) => {
        const { first, second, open, main, bulk } = driven();
        for (let count = 0; count < 3; count++) open().channel.write(Buffer.from('x'));
        await settle();
        for (const { on, id, kind, length, syn, fin } of frames) {
          const peer = on === 0 ? first : second;
          if (peer.socket.destroyed) continue;
          if (kind === 'data') peer.sendData(id, Buffer.alloc(length), { syn, fin });
          else if (kind === 'bytes') peer.socket.write(Buffer.alloc(length, id));
          else {
            if (kind === 'moved') peer.send.moved(id);
            else if (kind === 'reset') peer.send.reset(id, 6);
            else peer.send.windowIncrement(id, length + 1);
            peer.flush();
          }
        }
        await settle();
        for (const connection of [main, bulk]) connection.close(new Error('over'));
        await settle();
      }),
      { numRuns: 60 },
    );
  });
});

it('a peer that does not support it gets no notice, and its own are ignored', async () => {
  const [near, far] = path(() => 1);
  const ended: string[] = [];
  const main = new Connection(near, { accept() {}, ended: (reason) => void ended.push(reason.message) });
  main.trust(new MemoryBudget(Number.POSITIVE_INFINITY));
  main.start();
  const peer = new MuxPeer(far);
  const stream = new Counter(main.channel());
  main.open(stream.channel);
  stream.channel.write(Buffer.from('x'));
  await settle();
  peer.send.moved(2);
  peer.sendData(2, numbered(0, 100));
  await until(() => stream.received === 100, 'the data');
  expect([stream.isInOrder, stream.closed, ended]).toEqual([true, false, []]);
});
