import { Duplex } from 'node:stream';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Channel, ChannelReceiver } from '../../src/agent-protocol/channel.ts';
import { Connection } from '../../src/agent-protocol/connection.ts';
import { LARGEST_WINDOW } from '../../src/agent-protocol/credit-window.ts';
import { LinkBundle } from '../../src/agent-protocol/link-bundle.ts';
import { StreamType, streamPrefix } from '../../src/agent-protocol/messages.ts';
import { TypedStream } from '../../src/agent-protocol/rpc.ts';
import { laneHeader, segmentHeader } from '../../src/agent-protocol/segments.ts';
import { MemoryBudget } from '../../src/lib/memory-budget.ts';
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
    // 4 MB/s.
    setTimeout(done, 1 + chunk.length / 4000);
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

/** The agent's and the gateway's end of a session with links on which packets are lost; streams of either are spread soon. */
async function session(seed: number, links = 4) {
  const random = seeded(seed);
  const budgets = { agent: new MemoryBudget(64 * KIB * KIB), gateway: new MemoryBudget(64 * KIB * KIB) };
  const accepted: Reader[] = [];
  const ends = (['agent', 'gateway'] as const).map((role) => {
    const bundle = new LinkBundle({ probe: async () => 12, wantsLinks() {} }, links);
    return { role, bundle, connections: [] as Connection[] };
  });
  const sockets = Array.from({ length: links }, () => lossyPair(random));
  for (const [link, pair] of sockets.entries()) {
    for (const [at, { role, bundle, connections }] of ends.entries()) {
      const accept = (channel: Channel) => {
        channel.receiver = new TypedStream(channel, (type) => {
          channel.isServed = true;
          if (type === StreamType.lane) return bundle.accept(channel);
          channel.maySpread = true;
          const reader = new Reader(channel, () => random() < 0.05);
          accepted.push(reader);
          return reader;
        });
      };
      const connection = new Connection(pair[at] as Duplex, { accept, ended() {} }, role);
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
  const open = async () => {
    const [connection] = gateway.connections as [Connection];
    const channel = connection.channel();
    channel.maySpread = true;
    const near = new Reader(channel, () => random() < 0.05);
    channel.receiver = near;
    channel.write(streamPrefix(StreamType.proxy));
    connection.open(channel);
    const farEnd = () => accepted.find((one) => one.channel.id === channel.id);
    await until(() => farEnd() !== undefined, 'the stream at the agent');
    const far = farEnd() as Reader;
    far.channel.acknowledge();
    return { near, far };
  };
  return { agent, gateway, open, sockets, budgets, random };
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
  const bytes = bytesOf(4000 * KIB, random);
  send(stream[from], bytes, (channel) => channel.end());
  const to = from === 'near' ? stream.far : stream.near;
  await until(() => to.ended, 'the first transfer');
  expect(to.bytes.equals(bytes)).toBe(true);
}

const SEEDS = [1, 2, 3, 4, 5, 6];

describe('a stream that is spread over links', () => {
  it.each(['near', 'far'] as const)(
    'arrives in order and ends, sent by its %s end, and leaves no memory',
    async (from) => {
      const run = async (seed: number) => {
        const scene = await session(seed, 2 + (seed % 4));
        const sender = from === 'near' ? scene.gateway : scene.agent;
        await becomeLossy(scene, from);
        expect(sender.bundle.isLossy).toBe(true);
        const streams = await Promise.all(Array.from({ length: 5 }, () => scene.open()));
        const sent = streams.map(() => bytesOf(Math.floor(900 * KIB * scene.random()), scene.random));
        for (const [at, stream] of streams.entries())
          send(stream[from], sent[at] as Buffer, (channel) => channel.end());
        const all = streams.flatMap(({ near, far }) => [near, far]);
        await until(() => all.every(({ closed }) => closed), 'the ends');
        for (const [at, { near, far }] of streams.entries()) {
          expect((from === 'near' ? far : near).bytes.equals(sent[at] as Buffer)).toBe(true);
          expect([near.error, far.error]).toEqual([undefined, undefined]);
        }
        const { agent, gateway } = scene.budgets;
        await until(() => agent.held + agent.reserved + gateway.held + gateway.reserved === 0, 'the memory');
        const ends = [scene.agent, scene.gateway];
        const isUsed = () => ends.some(({ bundle, connections }) => connections.some((one) => bundle.uses(one)));
        await until(() => !isUsed(), 'the ends of the lanes');
      };
      await Promise.all(SEEDS.map(run));
    },
  );

  it('is whole or fails when a link is lost in the middle of it, and others go on', async () => {
    let failed = 0;
    const run = async (seed: number) => {
      const scene = await session(seed, 5);
      await becomeLossy(scene, 'far');
      const streams = await Promise.all(Array.from({ length: 4 }, () => scene.open()));
      const sent = streams.map(() => bytesOf(1500 * KIB, scene.random));
      for (const [at, { far }] of streams.entries()) send(far, sent[at] as Buffer, (channel) => channel.end());
      const threshold = 1200 * KIB * scene.random();
      await until(() => streams.some(({ near }) => near.length > threshold), 'some of it');
      // Not the first, on which all of them were opened.
      scene.sockets[1 + (seed % 4)]?.[seed % 2]?.destroy();
      const all = streams.flatMap(({ near, far }) => [near, far]);
      await until(() => all.every(({ closed }) => closed), 'the ends');
      for (const [at, { near }] of streams.entries()) {
        const { bytes } = near;
        expect(bytes.equals((sent[at] as Buffer).subarray(0, bytes.length))).toBe(true);
        if (near.ended) expect(bytes.length).toBe(1500 * KIB);
        else expect(near.error).toBeInstanceOf(Error);
        if (!near.ended) failed += 1;
      }
      const { agent, gateway } = scene.budgets;
      await until(() => agent.held + gateway.held === 0, 'the memory');
      await becomeLossy(scene, 'far');
    };
    await Promise.all(SEEDS.map(run));
    expect(failed).toBeGreaterThan(0);
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

  it('is held up by a receiver that does not read, with a window on each link', async () => {
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
    let before = -1;
    await until(async () => {
      const stands = before === written;
      before = written;
      await new Promise((resolve) => setTimeout(resolve, 300));
      return stands;
    }, 'the sender to wait');
    expect(near.length).toBe(0);
    // On its own link before it was spread, on three others, and what waits at the sender.
    expect(written).toBeLessThan(5 * WINDOW + 256 * KIB);
    expect(scene.budgets.gateway.held).toBeGreaterThan(WINDOW / 4);
    near.channel.abort();
    await until(() => far.closed && scene.budgets.gateway.held + scene.budgets.agent.held === 0, 'the memory');
  });

  it.each([
    ['bytes that have arrived already', (sent: number) => segmentHeader({ offset: sent - 1, length: 1, end: 'none' })],
    ['a segment that is too long', (sent: number) => segmentHeader({ offset: sent, length: 70_000, end: 'none' })],
    ['an empty segment', (sent: number) => segmentHeader({ offset: sent, length: 0, end: 'none' })],
    ['half a header', (sent: number) => segmentHeader({ offset: sent, length: 1, end: 'none' }).subarray(0, 4)],
  ])('fails with %s, and its session goes on', async (_what, wrong) => {
    const { gateway, agent, open } = await session(3, 2);
    const { near, far } = await open();
    far.channel.write(Buffer.from('abc'));
    await until(() => near.length === 3, 'the bytes');
    const lane = agent.connections[1]?.channel() as Channel;
    lane.write(Buffer.concat([streamPrefix(StreamType.lane), laneHeader(0, near.channel.id)]));
    lane.write(wrong(3));
    lane.write(Buffer.from('x'));
    lane.end();
    agent.connections[1]?.open(lane);
    await until(() => near.closed && far.closed, 'the failure');
    expect(near.error).toBeInstanceOf(Error);
    expect([near.bytes.toString(), near.ended]).toEqual(['abc', false]);
    expect(gateway.connections.map(({ hasEnded }) => hasEnded)).toEqual([false, false]);
  });

  it.each([
    ['a link that there is not', (id: number) => laneHeader(7, id)],
    ['a stream that there is not', () => laneHeader(0, 4000)],
  ])('a lane of %s is reset, and nothing else', async (_what, header) => {
    const { gateway, agent, open } = await session(4, 2);
    const { near } = await open();
    const lane = new Reader(agent.connections[1]?.channel() as Channel);
    lane.channel.receiver = lane;
    lane.channel.write(Buffer.concat([streamPrefix(StreamType.lane), header(near.channel.id)]));
    agent.connections[1]?.open(lane.channel);
    await until(() => lane.closed, 'the reset');
    await settle();
    expect([near.closed, ...gateway.connections.map(({ hasEnded }) => hasEnded)]).toEqual([false, false, false]);
  });
});
