import { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Channel, ChannelReceiver } from '../../src/agent-protocol/channel.ts';
import { Connection } from '../../src/agent-protocol/connection.ts';
import { LARGEST_WINDOW } from '../../src/agent-protocol/credit-window.ts';
import { LinkBundle } from '../../src/agent-protocol/link-bundle.ts';
import { StreamType, streamPrefix } from '../../src/agent-protocol/messages.ts';
import { TypedStream } from '../../src/agent-protocol/rpc.ts';
import { DepartedPart, partHead } from '../../src/agent-protocol/stream-parts.ts';
import { MemoryBudget } from '../../src/lib/memory-budget.ts';
import { TokenBucket } from '../../src/lib/time/token-bucket.ts';
import { settle, until } from '../support/until.ts';

const KIB = 1024;
const WINDOW = 256 * KIB;

/** Numbers from 0 to below 1, the same for the same seed. */
function seeded(seed: number): () => number {
  let state = seed + 1;
  return () => {
    state = (state * 48_271) % 2_147_483_647;
    return state / 2_147_483_647;
  };
}

function bytesOf(length: number, random: () => number): Buffer {
  const bytes = Buffer.allocUnsafe(length);
  for (let at = 0; at < length; at++) bytes[at] = Math.floor(random() * 256);
  return bytes;
}

/** One way of a link: slow, far, and held up now and then, as TCP is by a lost packet. */
class LossyEnd extends Duplex {
  other: LossyEnd | null = null;
  #arrivesAt = 0;
  /** In order, whichever timer is first. */
  readonly #onItsWay: Buffer[] = [];

  constructor(private readonly random: () => number) {
    super({ allowHalfOpen: false });
    this.on('error', () => {});
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    const stallMs = this.random() < 0.05 ? 20 + 150 * this.random() : 0;
    const arrivesAt = Math.max(this.#arrivesAt, performance.now() + 12 + stallMs);
    this.#arrivesAt = arrivesAt;
    this.#onItsWay.push(chunk);
    setTimeout(() => this.other?.push(this.#onItsWay.shift()), arrivesAt - performance.now());
    // 2 MB/s.
    setTimeout(done, 1 + chunk.length / 2000);
  }

  override _read(): void {}

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    setTimeout(() => this.other?.destroy(), 12);
    done(error);
  }
}

function lossyPair(random: () => number): [LossyEnd, LossyEnd] {
  const [near, far] = [new LossyEnd(random), new LossyEnd(random)];
  near.other = far;
  far.other = near;
  return [near, far];
}

/** What one end of a stream gets. */
class Reader implements ChannelReceiver {
  readonly pieces: Buffer[] = [];
  length = 0;
  ended = false;
  closed = false;
  error: Error | undefined;
  onDrain?: () => void;

  constructor(
    readonly channel: Channel,
    /** Whether it waits before it takes more. */
    private readonly pauses: () => boolean = () => false,
  ) {}

  get bytes(): Buffer {
    return Buffer.concat(this.pieces);
  }

  onData(payload: Buffer): void {
    this.pieces.push(Buffer.from(payload));
    this.length += payload.length;
    if (!this.pauses()) return;
    this.channel.pause();
    setTimeout(() => this.channel.resume(), 5);
  }

  onEnd(): void {
    this.ended = true;
    this.channel.end();
  }

  onClosed(error?: Error): void {
    this.closed = true;
    this.error = error;
  }
}

/**
 * The agent's and the gateway's end of a session with links on which packets are lost.
 *
 * @param answerMs how long the peer takes to answer on a link
 */
async function session(
  seed: number,
  links = 4,
  answerMs: (isFirst: boolean) => number = (isFirst) => (isFirst ? 60 : 12),
) {
  const random = seeded(seed);
  const budgets = { agent: new MemoryBudget(64 * KIB * KIB), gateway: new MemoryBudget(64 * KIB * KIB) };
  const accepted: { reader: Reader; link: number }[] = [];
  const asked: Connection[] = [];
  const ends = (['agent', 'gateway'] as const).map((role) => {
    const connections: Connection[] = [];
    const ask = async (connection: Connection) => {
      asked.push(connection);
      await delay(answerMs(connection === connections[0]));
      return true;
    };
    const wanted: number[] = [];
    const user = { ask, sentAgain: async () => null, wantsLinks: (count: number) => void wanted.push(count) };
    return { role, bundle: new LinkBundle(user, () => 12), connections, wanted };
  });
  const sockets = Array.from({ length: links }, () => lossyPair(random));
  for (const [link, pair] of sockets.entries()) {
    for (const [at, { role, bundle, connections }] of ends.entries()) {
      const accept = (channel: Channel) => {
        channel.receiver = new TypedStream(channel, (type) => {
          if (type === StreamType.part) return bundle.accept(channel, connection);
          channel.isServed = true;
          channel.maySpread = true;
          const reader = new Reader(channel, () => random() < 0.05);
          accepted.push({ reader, link });
          return reader;
        });
      };
      const carriesBulk = (isSent: boolean) => void (isSent && bundle.carriesBulk(connection));
      const ended = () => bundle.delete(connection);
      const connection = new Connection(pair[at] as Duplex, { accept, carriesBulk, ended }, role);
      connection.trust(budgets[role]);
      connection.extend(LARGEST_WINDOW);
      connection.roundTrip.add(24, performance.now());
      connection.start();
      bundle.add(link, connection);
      connections.push(connection);
    }
  }
  onTestFinished(() => {
    for (const [near] of sockets) near.destroy();
  });
  const [agent, gateway] = ends as [(typeof ends)[0], (typeof ends)[0]];
  /** Opens a stream as the gateway does for a client. */
  const open = async (on = 0) => {
    const connection = gateway.connections[on] as Connection;
    const channel = connection.channel();
    channel.maySpread = true;
    const near = new Reader(channel, () => random() < 0.05);
    channel.receiver = near;
    channel.write(streamPrefix(StreamType.proxy));
    connection.open(channel);
    const far = () => accepted.find(({ reader, link }) => link === on && reader.channel.id === channel.id)?.reader;
    await until(() => far() !== undefined || channel.closed, 'the stream at the agent');
    far()?.channel.acknowledge();
    return { near, far: far() as Reader };
  };
  return { agent, gateway, open, sockets, budgets, random, asked };
}

type Session = Awaited<ReturnType<typeof session>>;

/** Writes all of it as the stream has room, then does what follows. */
function send(reader: Reader, bytes: Buffer, then: (channel: Channel) => void): void {
  let at = 0;
  const more = () => {
    while (at < bytes.length && !reader.channel.closed) {
      const piece = bytes.subarray(at, at + 40_000);
      at += piece.length;
      if (!reader.channel.write(piece)) return;
    }
    if (at < bytes.length) return;
    reader.onDrain = () => {};
    then(reader.channel);
  };
  reader.onDrain = more;
  more();
}

/** Until streams that the end sends are spread. */
async function becomeLossy({ open, random }: Session, from: 'near' | 'far') {
  const stream = await open();
  const bytes = bytesOf(2500 * KIB, random);
  send(stream[from], bytes, (channel) => channel.end());
  const to = from === 'near' ? stream.far : stream.near;
  await until(() => to.ended, 'the first transfer');
  expect(to.bytes.equals(bytes)).toBe(true);
}

/** Sends a part as it may come from anybody. */
function sendPart(link: Connection | undefined, number: number, id: number, offset: number, bytes = 'x'): Channel {
  const lane = (link as Connection).channel();
  lane.write(Buffer.concat([streamPrefix(StreamType.part), partHead(number, id, offset), Buffer.from(bytes)]));
  lane.end();
  link?.open(lane);
  return lane;
}

const SEEDS = [1, 2, 3, 4, 5, 6];

/** Until no end holds anything of streams that have ended. */
async function nothingLeft({ agent, gateway, budgets }: Session) {
  const held = () => [budgets.agent, budgets.gateway].reduce((sum, one) => sum + one.held + one.reserved, 0);
  await until(() => held() === 0, 'the memory');
  const ends = [agent, gateway];
  const isUsed = () => ends.some(({ bundle, connections }) => connections.some((one) => bundle.carries(one)));
  await until(() => !isUsed(), 'the ends of the parts');
}

describe('a stream that is spread over links', () => {
  it.each(['near', 'far'] as const)('arrives in order and ends, sent by its %s end', async (from) => {
    const run = async (seed: number) => {
      const scene = await session(seed, 3 + (seed % 3));
      const sender = from === 'near' ? scene.gateway : scene.agent;
      await becomeLossy(scene, from);
      expect(sender.bundle.isLossy).toBe(true);
      expect(Math.max(...sender.wanted)).toBeGreaterThanOrEqual(4);
      const streams = await Promise.all(Array.from({ length: 5 }, () => scene.open()));
      const sent = streams.map(() => bytesOf(Math.floor(900 * KIB * scene.random()), scene.random));
      const before = sender.connections.map(({ sentBytes }) => sentBytes);
      for (const [at, stream] of streams.entries()) send(stream[from], sent[at] as Buffer, (channel) => channel.end());
      const all = streams.flatMap(({ near, far }) => [near, far]);
      await until(() => all.every(({ closed }) => closed), 'the ends');
      for (const [at, { near, far }] of streams.entries()) {
        expect((from === 'near' ? far : near).bytes.equals(sent[at] as Buffer)).toBe(true);
        expect([near.error, far.error]).toEqual([undefined, undefined]);
      }
      await nothingLeft(scene);
      const carried = sender.connections.map(({ sentBytes }, at) => sentBytes - (before[at] ?? 0) > 64 * KIB);
      // One is left to what is little.
      expect(carried).toEqual(carried.map((_, at) => at !== 1));
    };
    await Promise.all(SEEDS.map(run));
  });

  it('goes on where it was opened between transfers, and small messages come in order', async () => {
    const scene = await session(7);
    await becomeLossy(scene, 'far');
    const { near, far } = await scene.open();
    const sent: Buffer[] = [];
    for (let round = 0; round < 60; round++) {
      const bytes = bytesOf(Math.floor((round % 3 === 0 ? 200 * KIB : 300) * scene.random()), scene.random);
      sent.push(bytes);
      far.channel.write(bytes);
      if (round % 5 === 0) await delay(10 * scene.random());
    }
    far.channel.end();
    await until(() => near.ended, 'the end');
    expect(near.bytes.equals(Buffer.concat(sent))).toBe(true);
    near.channel.end();
    await until(() => far.closed, 'the close');
    await nothingLeft(scene);
  });

  it('is whole or fails at both ends when links are lost and streams are aborted, whenever that is', async () => {
    const counts = { whole: 0, failed: 0 };
    const run = async (seed: number) => {
      const scene = await session(seed, 5);
      const { random } = scene;
      await becomeLossy(scene, 'far');
      const streams = await Promise.all(Array.from({ length: 8 }, (_, at) => scene.open(at % 4)));
      const sent = streams.map(() => bytesOf(Math.floor(1200 * KIB * random()), random));
      const answers = streams.map(() => bytesOf(Math.floor(300 * KIB * random()), random));
      for (const [at, { near, far }] of streams.entries()) {
        send(far, sent[at] as Buffer, (channel) => channel.end());
        // The other end has something to send, too. Each ends when it has sent all.
        for (const reader of [near, far]) {
          reader.onEnd = () => {
            reader.ended = true;
          };
        }
        send(near, answers[at] as Buffer, (channel) => channel.end());
      }
      const doomed = [0, 1 + (seed % 4)];
      const later = async (ms: number, what: () => void) => {
        await delay(ms * random());
        what();
      };
      await Promise.all([
        later(600, () => scene.sockets[doomed[seed % 2] as number]?.[seed % 2]?.destroy()),
        later(600, () => streams[seed]?.near.channel.abort()),
        later(600, () => streams[seed - 1]?.far.channel.abortWhenSent()),
      ]);
      const all = streams.flatMap(({ near, far }) => [near, far]);
      await until(() => all.every(({ closed }) => closed), 'the ends');
      for (const [at, { near, far }] of streams.entries()) {
        for (const [reader, whole] of [
          [near, sent[at] as Buffer],
          [far, answers[at] as Buffer],
        ] as const) {
          const { bytes } = reader;
          expect(bytes.equals(whole.subarray(0, bytes.length))).toBe(true);
          if (reader.ended) expect(bytes.length).toBe(whole.length);
          counts[reader.ended ? 'whole' : 'failed'] += 1;
        }
      }
      await nothingLeft(scene);
    };
    await Promise.all([...SEEDS, 7].map(run));
    expect(Math.min(counts.whole, counts.failed)).toBeGreaterThan(0);
  });

  it.each([false, true])('gets all that was sent, and the end (%s), before it is aborted', async (isEnded) => {
    const scene = await session(1);
    await becomeLossy(scene, 'far');
    const { near, far } = await scene.open();
    // The other direction stays open.
    near.onEnd = () => {
      near.ended = true;
    };
    const sent = bytesOf(700 * KIB, scene.random);
    send(far, sent, (channel) => {
      if (isEnded) channel.end();
      channel.abortWhenSent();
    });
    await until(() => near.closed && far.closed, 'the reset');
    expect([near.bytes.equals(sent), near.ended, near.error?.message]).toEqual([
      true,
      isEnded,
      'stream reset by the peer',
    ]);
  });

  it('is held up by a receiver that does not read, with one window for all links', async () => {
    const scene = await session(2);
    await becomeLossy(scene, 'far');
    const { near, far } = await scene.open();
    near.channel.pause();
    let written = 0;
    const fill = () => {
      while (far.channel.write(Buffer.alloc(64 * KIB))) written += 64 * KIB;
    };
    far.onDrain = fill;
    fill();
    await until(() => scene.budgets.gateway.held >= 200 * KIB, 'the window to be full');
    await delay(100);
    expect(near.length).toBe(0);
    // The window, and what waits at the sender.
    expect(written).toBeLessThanOrEqual(WINDOW + 192 * KIB);
    near.channel.abort();
    await until(() => far.closed, 'the abort');
    await nothingLeft(scene);
  });

  it.each([
    ['bytes that have arrived already', 2, 10],
    ['more than a part has', 3, 40_000],
    ['nothing', 3, 0],
  ])('fails by a part with %s, and its session goes on', async (_what, offset, length) => {
    const { gateway, agent, open } = await session(3, 2);
    const { near, far } = await open();
    far.channel.write(Buffer.from('abc'));
    await until(() => near.length === 3, 'the bytes');
    const lane = agent.connections[1]?.channel() as Channel;
    const head = partHead(0, near.channel.id, offset);
    lane.write(Buffer.concat([streamPrefix(StreamType.part), head, Buffer.alloc(length)]));
    lane.end();
    agent.connections[1]?.open(lane);
    await until(() => near.closed && far.closed && lane.closed, 'the failure');
    expect(near.error).toBeInstanceOf(Error);
    expect([near.bytes.toString(), near.ended]).toEqual(['abc', false]);
    expect(gateway.connections.map(({ hasEnded }) => hasEnded)).toEqual([false, false]);
  });

  it('fails by more early parts than its window allows, and by an end before what precedes it', async () => {
    const { agent, open } = await session(3, 2);
    const part = (id: number, offset: number) => {
      const lane = agent.connections[1]?.channel() as Channel;
      lane.write(Buffer.concat([streamPrefix(StreamType.part), partHead(0, id, offset), Buffer.alloc(32 * KIB)]));
      lane.end();
      agent.connections[1]?.open(lane);
    };
    const [many, early] = [await open(), await open()];
    for (let at = 1; at <= 9; at++) part(many.near.channel.id, at * 32 * KIB);
    await until(() => many.near.closed, 'the failure');
    part(early.near.channel.id, 1);
    await delay(60);
    early.far.channel.end();
    await until(() => early.near.closed && early.far.closed, 'the failure');
    expect([early.near.ended, early.near.error?.message]).toEqual([
      false,
      'the end of a stream before what precedes it',
    ]);
  });

  it('fails by early parts smaller than a sender has but for its last, which count as what they take', async () => {
    const { agent, open, budgets, gateway } = await session(3, 2);
    const { near, far } = await open();
    const parts = (from: number, to: number) =>
      Array.from({ length: to - from }, (_, at) =>
        sendPart(agent.connections[1], 0, near.channel.id, 2 * (from + at) + 1),
      );
    const first = parts(0, 16);
    await until(() => first.every(({ closed }) => closed), 'the parts');
    await until(() => budgets.gateway.held >= 16 * 4 * KIB, 'the memory');
    parts(16, 24);
    await until(() => near.closed && far.closed, 'the failure');
    await until(() => budgets.gateway.held === 0, 'the memory');
    expect([near.length, gateway.connections.map(({ hasEnded }) => hasEnded)]).toEqual([0, [false, false]]);
  });

  it('may be one of a link with a high number, as links come and go for months', async () => {
    const { agent, gateway, open } = await session(3, 2);
    const { near } = await open(1);
    gateway.bundle.add(70_000, gateway.connections[1] as Connection);
    sendPart(agent.connections[0], 70_000, near.channel.id, 0, 'abc');
    await until(() => near.length === 3, 'the bytes');
  });

  it('costs its stream only when there is too little memory for a part that it sends', async () => {
    const { agent, open } = await session(3, 3);
    const { near, far } = await open();
    const link = agent.connections[1] as Connection;
    far.channel.maySpread = true;
    far.channel.write(Buffer.alloc(64 * KIB));
    const sent: Channel[] = [];
    far.channel.takePart(32 * KIB, () => {
      const lane = link.channel();
      lane.receiver = new DepartedPart(lane, far.channel, () => {});
      sent.push(lane);
      lane.write(Buffer.alloc(32 * KIB));
      link.open(lane);
      return lane.receiver as DepartedPart;
    });
    link.reclaim();
    await until(() => near.closed && far.closed, 'the failure');
    expect([sent.map(({ closed }) => closed), far.error?.message, link.hasEnded]).toEqual([
      [true],
      'memory limit reached',
      false,
    ]);
  });

  it.each([
    ['a link that there is not', (id: number) => partHead(7, id, 0)],
    ['a stream that there is not', () => partHead(0, 4000, 0)],
    ['half a head', (id: number) => partHead(0, id, 0).subarray(0, 5)],
  ])('a part of %s is reset, and nothing else', async (_what, head) => {
    const { gateway, agent, open } = await session(4, 2);
    const { near } = await open();
    const lane = new Reader(agent.connections[1]?.channel() as Channel);
    lane.channel.receiver = lane;
    lane.channel.write(Buffer.concat([streamPrefix(StreamType.part), head(near.channel.id)]));
    lane.channel.end();
    agent.connections[1]?.open(lane.channel);
    await until(() => lane.closed, 'the reset');
    expect(lane.error).toBeInstanceOf(Error);
    await settle();
    expect([near.closed, ...gateway.connections.map(({ hasEnded }) => hasEnded)]).toEqual([false, false, false]);
  });

  it.each([
    ['of a stream that there is not', 4000],
    ['that say again and again that packets are lost', 0],
  ])('parts %s are glitches', async (_what, id) => {
    const { gateway, agent } = await session(4, 2);
    const glitches = new TokenBucket({ burst: 1000, perMs: 0 }, performance.now());
    const [, link] = gateway.connections as [Connection, Connection];
    link.trust(new MemoryBudget(64 * KIB * KIB), glitches);
    const sent = Array.from({ length: 50 }, () => sendPart(agent.connections[1], 0, id, 0));
    await until(() => sent.every(({ closed }) => closed), 'the resets');
    // The first one that says so is as it should be.
    expect(glitches.left(performance.now())).toBe(id === 0 ? 510 : 500);
    expect(link.hasEnded).toBe(false);
    for (let count = 0; count < 60; count++) sendPart(agent.connections[1], 0, id, 0);
    await until(() => link.hasEnded, 'the end of the link');
  });
});

describe('the links of a session', () => {
  it.each([
    ['the road is full, as others wait there too', () => 60],
    ['TCP holds nothing up', () => 12],
  ])('stay as they are when %s', async (_why, answerMs) => {
    const scene = await session(5, 4, answerMs);
    await becomeLossy(scene, 'far');
    expect(scene.asked.length).toBeGreaterThan(0);
    expect([scene.agent.bundle.isLossy, scene.agent.wanted]).toEqual([false, []]);
    expect(scene.agent.connections.slice(1).every(({ sentBytes }) => sentBytes < KIB)).toBe(true);
  });

  it('are not looked at for small requests, nor by the receiver of a transfer', async () => {
    const scene = await session(6);
    for (let count = 0; count < 50; count++) {
      const { near, far } = await scene.open();
      send(far, Buffer.alloc(20 * KIB), (channel) => channel.end());
      await until(() => near.ended, 'the answer');
    }
    expect(scene.asked).toEqual([]);
    await becomeLossy(scene, 'far');
    expect(scene.asked.every((one) => scene.agent.connections.includes(one))).toBe(true);
  });

  it('are too few for parts when there are two: the peer is told, and agents open more', async () => {
    const scene = await session(9, 2);
    await becomeLossy(scene, 'near');
    expect(scene.gateway.bundle.isLossy).toBe(true);
    await until(() => scene.agent.wanted.includes(4), 'the wish for links');
    expect(scene.gateway.connections[1]?.sentBytes).toBeLessThan(KIB);
    await nothingLeft(scene);
  });

  it('are opened again for the next transfer once they were closed', async () => {
    const scene = await session(10, 3);
    await becomeLossy(scene, 'far');
    for (const [near] of scene.sockets.slice(1)) near.destroy();
    await until(() => scene.agent.bundle.size + scene.gateway.bundle.size === 2, 'the ends of the links');
    scene.agent.wanted.length = 0;
    await becomeLossy(scene, 'far');
    expect(Math.max(...scene.agent.wanted)).toBeGreaterThanOrEqual(4);
  });

  it('one that leaves gets nothing more, unless it is in use', async () => {
    const scene = await session(8);
    const { agent } = scene;
    await becomeLossy(scene, 'far');
    const leaving = agent.connections[3] as Connection;
    expect(agent.bundle.leave(leaving)).toBe(true);
    const { sentBytes } = leaving;
    await becomeLossy(scene, 'far');
    expect(leaving.sentBytes).toBe(sentBytes);
    agent.bundle.stay(leaving);
    const { far } = await scene.open();
    send(far, Buffer.alloc(900 * KIB), () => {});
    await until(() => agent.bundle.carries(leaving), 'a part there');
    expect(agent.bundle.leave(leaving)).toBe(false);
  });

  it('is in use at the end that parts come to as well', async () => {
    const { agent, gateway, open } = await session(8, 2);
    const { near } = await open();
    const areUsed = () => gateway.connections.map((one) => gateway.bundle.isUsed(one));
    sendPart(agent.connections[0], 0, 4000, 0);
    sendPart(agent.connections[1], 0, near.channel.id, 0);
    await until(() => near.length === 1, 'the part');
    await settle();
    expect(areUsed()).toEqual([false, true]);
  });
});
