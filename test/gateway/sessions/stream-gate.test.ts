import { duplexPair } from 'node:stream';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { MAX_DISCARDED } from '../../../src/agent-protocol/channel.ts';
import { Connection } from '../../../src/agent-protocol/connection.ts';
import { StreamsExhausted } from '../../../src/gateway/endpoints/online-endpoint.ts';
import { type GatedChannel, Lane, StreamGate } from '../../../src/gateway/sessions/stream-gate.ts';
import { MemoryBudget } from '../../../src/lib/memory-budget.ts';
import { MuxPeer } from '../../agent-protocol/mux-peer.ts';
import { gate as gateOf, settle, until } from '../../support/until.ts';

const PREAMBLE = Buffer.from('type and header');
const CLIENT = '192.0.2.1';

function setUp(limit?: number) {
  const [socket, far] = duplexPair();
  const connection = new Connection(socket, { accept() {}, ended() {} });
  connection.start();
  const user = {
    hasSeveral: false,
    link: () => connection,
    beat: vi.fn(async () => true),
    onStuck: vi.fn(),
    onAbandoned: vi.fn(),
  };
  const gate = new StreamGate(user, limit);
  const peer = new MuxPeer(far);
  const lane = new Lane();
  lane.ready = true;
  const opened = () => peer.frames.filter((one) => one.syn).map((one) => one.id);
  return { connection, gate, user, peer, lane, opened };
}

/** Another listener of the session. */
function readyLane(upstream = 'another'): Lane {
  const lane = new Lane(upstream);
  lane.ready = true;
  return lane;
}

const isDisplaced = ({ abandonedAt }: GatedChannel) => abandonedAt !== null;

/** Opens streams until one is refused. */
function fill(gate: StreamGate, lane: Lane, client = CLIENT): GatedChannel[] {
  const streams: GatedChannel[] = [];
  try {
    for (;;) streams.push(gate.open(lane, PREAMBLE, client));
  } catch (error) {
    if (!(error instanceof StreamsExhausted)) throw error;
    return streams;
  }
}

async function steerTimers(): Promise<void> {
  vi.useFakeTimers({ toFake: ['setTimeout', 'performance'] });
  onTestFinished(() => void vi.useRealTimers());
  await settle(); // the turn's time may be that of the other clock
}

/** The credit that an SDK sends after reading a stream's header. */
function takeHeader(peer: MuxPeer, ids: number[]): void {
  for (const id of ids) peer.send.windowIncrement(id, PREAMBLE.length);
  peer.flush();
}

/** Answers until no stream is left to open: that to one of a listener stands for all earlier ones. */
async function openAll(peer: MuxPeer, opened: () => number[]): Promise<number[]> {
  for (let done = 0; ; ) {
    await settle();
    const ids = opened();
    if (ids.length === done) return ids;
    peer.sendData(ids.at(-1) ?? 0, 'an answer');
    done = ids.length;
  }
}

describe('StreamGate', () => {
  it('sends the whole preamble in the frame that opens the stream', async () => {
    const { gate, peer, lane } = setUp();
    gate.open(lane, PREAMBLE, CLIENT).write(Buffer.from('GET /'));
    await settle();
    expect(peer.frames).toMatchObject([{ syn: true, fin: false }]);
    expect(peer.received(2).toString()).toBe('type and headerGET /');
  });

  it('holds streams back until the agent has registered the listener', async () => {
    const { gate, opened } = setUp();
    const lane = new Lane();
    gate.open(lane, PREAMBLE, CLIENT);
    await settle();
    expect(opened()).toEqual([]);
    lane.ready = true;
    gate.admit();
    await settle();
    expect(opened()).toEqual([2]);
  });

  it('has at most 32 streams in flight whose header the agent has not credited', async () => {
    const { gate, peer, lane, opened } = setUp();
    for (let count = 0; count < 40; count++) gate.open(lane, PREAMBLE, CLIENT);
    await settle();
    expect(opened()).toHaveLength(32);
    takeHeader(peer, opened().slice(0, 5));
    await settle();
    expect(opened()).toHaveLength(37);
  });

  it('holds back the streams of an unresponsive listener, and no others', async () => {
    const { gate, peer, lane, opened } = setUp();
    for (let count = 0; count < 80; count++) gate.open(lane, PREAMBLE, CLIENT);
    for (let round = 0; round < 4; round++) {
      await settle();
      takeHeader(peer, opened().slice(round * 20, round * 20 + 20));
    }
    await settle();
    expect(opened()).toHaveLength(56);

    const other = readyLane();
    gate.open(other, PREAMBLE, CLIENT);
    await settle();
    expect(opened()).toHaveLength(57);

    peer.sendData(2, 'an answer at last');
    await settle();
    expect(opened()).toHaveLength(58);
  });

  it('opens streams with data before silent ones while the listener has room', async () => {
    const { gate, peer, lane, opened } = setUp();
    const silent = Array.from({ length: 70 }, () => gate.open(lane, PREAMBLE, CLIENT));
    for (let round = 0; round < 3; round++) {
      await settle();
      takeHeader(peer, opened().slice(round * 20, round * 20 + 20));
    }
    await settle();
    expect(opened()).toHaveLength(56);
    for (const stream of silent.slice(60)) stream.write(Buffer.from('GET /'));
    await settle();
    expect(opened()).toHaveLength(62);

    // Listeners hand streams out in order: all earlier ones have been handed out, too.
    peer.sendData(opened().at(-6) ?? 0, 'an answer');
    await settle();
    expect(opened()).toHaveLength(70);
  });

  it('rejects the 501st stream, and opens one again after another has ended', async () => {
    const { gate, peer, lane } = setUp();
    const streams = Array.from({ length: 500 }, () => gate.open(lane, PREAMBLE, CLIENT));
    expect(() => gate.open(lane, PREAMBLE, CLIENT)).toThrow(StreamsExhausted);
    await settle();
    streams[0]?.abort();
    await settle();
    expect(() => gate.open(lane, PREAMBLE, CLIENT)).toThrow(StreamsExhausted);
    peer.sendData(2, '', { fin: true });
    await settle();
    gate.open(lane, PREAMBLE, CLIENT);
  });

  it.each<[string, boolean, string, number]>([
    ['of the listener with most streams to another listener', true, CLIENT, 1],
    ['of the client with most streams to another client', false, '192.0.2.2', 1],
    ['of nobody to the client that has them all', false, CLIENT, 0],
  ])('gives the stream with the least progress %s when none is left', async (_whose, other, client, expected) => {
    const { gate, peer, lane } = setUp();
    const displaced: number[] = [];
    const streams = Array.from({ length: 500 }, (_, at) => {
      const stream = gate.open(lane, PREAMBLE, CLIENT);
      stream.receiver = { onData() {}, onEnd() {}, onClosed: () => displaced.push(at) };
      return stream;
    });
    await settle();
    for (const stream of streams) if (stream !== streams[7]) stream.write(Buffer.from('more'));
    const newcomer = readyLane();
    const open = () => gate.open(other ? newcomer : lane, PREAMBLE, client);
    expect(open).toThrow(StreamsExhausted);
    expect(displaced).toEqual([7].slice(0, expected));
    peer.sendData(2 + 2 * 7, '', { fin: true });
    await settle();
    if (expected === 1) open();
  });

  it('makes further room when upstreams do not end their side of the streams', async () => {
    await steerTimers();
    const { gate, lane } = setUp();
    for (let count = 0; count < 500; count++) gate.open(lane, PREAMBLE, CLIENT);
    await settle();
    const displaced = () => [...lane.streams].filter(isDisplaced).length;
    const others = Array.from({ length: 10 }, (_, at) => `192.0.2.${at + 2}`);
    for (const other of others) expect(() => gate.open(lane, PREAMBLE, other)).toThrow(StreamsExhausted);
    expect(displaced()).toBe(8);
    vi.advanceTimersByTime(5_000);
    for (const other of others) expect(() => gate.open(lane, PREAMBLE, other)).toThrow(StreamsExhausted);
    expect(displaced()).toBe(16);
  });

  it.each<[string, number, number, number]>([
    ['gives up a session that has lost half of its streams to clients who left', 250, 0, 1],
    ['keeps a session that has lost fewer', 249, 0, 0],
    ['keeps a session whose upstreams end their side in time', 250, 1, 0],
  ])('%s', async (_what, left, ended, expected) => {
    await steerTimers();
    const { gate, user, peer, lane, opened } = setUp();
    const streams = Array.from({ length: 500 }, () => gate.open(lane, PREAMBLE, CLIENT));
    const ids = await openAll(peer, opened);
    for (const stream of streams.slice(0, left)) stream.abort();
    await settle();
    vi.advanceTimersByTime(20_000);
    expect(user.onAbandoned).not.toHaveBeenCalled();
    expect(() => gate.open(lane, PREAMBLE, CLIENT)).toThrow(StreamsExhausted);
    for (const id of ids.slice(0, ended)) peer.sendData(id, '', { fin: true });
    await settle();
    vi.advanceTimersByTime(10_000);
    expect(user.onAbandoned.mock.calls).toEqual(Array(expected).fill([left]));
  });

  it('leaves a tenth of the streams to other listeners, if there are any', async () => {
    const { gate, user, lane } = setUp();
    user.hasSeveral = true;
    expect(fill(gate, lane)).toHaveLength(450);
    const others = [readyLane(), readyLane(), readyLane()];
    const theirs = others.map((other) => Array.from({ length: 10 }, () => gate.open(other, PREAMBLE, CLIENT)));
    expect(theirs.flat()).toHaveLength(30);
    expect(gate.hasRoom(lane)).toBe(false);
    user.hasSeveral = false;
    expect(fill(gate, lane)).toHaveLength(20);
  });

  it('has streams left after five listeners have taken all they can, one after another', async () => {
    const { gate, user, lane } = setUp();
    user.hasSeveral = true;
    const greedy = Array.from({ length: 5 }, () => readyLane());
    const open = (one: Lane) => gate.open(one, PREAMBLE, CLIENT);
    for (const one of greedy) while (gate.hasRoom(one)) open(one);
    expect(greedy.map(({ streams }) => streams.size)).toEqual([450, 25, 13, 6, 3]);
    open(lane);
    expect(lane.streams.size).toBe(1);
  });

  it('gives a listener the streams of a larger one when it needs more than those that are left', async () => {
    const { connection, gate, user, lane } = setUp();
    connection.extend(1_048_576);
    user.hasSeveral = true;
    fill(gate, lane);
    const other = readyLane();
    for (let attempts = 0; attempts < 250; attempts++) fill(gate, other);
    expect([lane.streams.size, other.streams.size]).toEqual([225, 225]);
  });

  it('displaces streams of a listener that has some in use, rather than those that clients have left', async () => {
    const { gate, peer, user, lane, opened } = setUp();
    user.hasSeveral = true;
    const left = fill(gate, lane);
    await openAll(peer, opened);
    for (const stream of left) stream.abort();
    const streams = fill(gate, readyLane());
    const newcomer = readyLane();
    while (gate.hasRoom(newcomer)) {
      const other = readyLane();
      while (gate.hasRoom(other)) gate.open(other, PREAMBLE, CLIENT);
    }
    await openAll(peer, opened);
    expect(() => gate.open(newcomer, PREAMBLE, CLIENT)).toThrow(StreamsExhausted);
    expect(streams.filter(isDisplaced)).toHaveLength(1);
  });

  it('can use all of a small limit again, however few have ended', async () => {
    const { gate, peer, lane, opened } = setUp(20);
    for (let round = 0; round < 2; round++) {
      const streams = fill(gate, lane);
      expect(streams).toHaveLength(20);
      await until(() => opened().length === 20 * (round + 1), 'the streams');
      for (const stream of streams) stream.end();
      for (const id of opened().slice(-20)) peer.sendData(id, 'an answer', { fin: true });
      await until(() => lane.streams.size === 0, 'the ends');
      await settle();
    }
  });

  describe('when half of the streams are held for clients who left', () => {
    /** One listener with all the streams it can have, which its clients have left for 10 s. */
    async function abandonedSetUp(end: (stream: GatedChannel) => void = (stream) => stream.abort()) {
      await steerTimers();
      const session = setUp();
      session.user.hasSeveral = true;
      const hung = readyLane('hung');
      const streams = fill(session.gate, hung);
      await openAll(session.peer, session.opened);
      for (const stream of streams) end(stream);
      await settle();
      vi.advanceTimersByTime(10_000);
      await settle();
      const { gate, user } = session;
      /** Whether the session is given up when a client of this listener is refused. */
      const isGivenUpFor = (lane: Lane) => {
        user.onAbandoned.mockClear();
        fill(gate, lane);
        vi.advanceTimersByTime(1_000);
        return user.onAbandoned.mock.calls.length > 0;
      };
      return { ...session, hung, isGivenUpFor };
    }

    it.each<[string, (stream: GatedChannel) => void]>([
      ['have left', (stream) => stream.abort()],
      ['have ended their side', (stream) => stream.end()],
    ])('gives the session up for a listener of another upstream: they %s', async (_how, end) => {
      const { lane, isGivenUpFor } = await abandonedSetUp(end);
      expect(isGivenUpFor(lane)).toBe(true);
    });

    it('gives the session up once they have left for 10 s, though others were refused before', async () => {
      await steerTimers();
      const { gate, user, lane, peer, opened } = setUp();
      const streams = fill(gate, lane);
      await openAll(peer, opened);
      vi.advanceTimersByTime(4_000);
      for (const stream of streams) stream.abort();
      await settle();
      const other = readyLane();
      for (let second = 0; second < 10; second++) {
        fill(gate, other);
        vi.advanceTimersByTime(1_000);
        await settle();
        expect(user.onAbandoned).toHaveBeenCalledTimes(second === 9 ? 1 : 0);
      }
    });

    it('keeps the session for its own clients while others use another listener', async () => {
      const { gate, lane, hung, isGivenUpFor } = await abandonedSetUp();
      const [stream] = [gate.open(lane, PREAMBLE, CLIENT)];
      expect(isGivenUpFor(hung)).toBe(false);
      stream.abort();
      expect(isGivenUpFor(hung)).toBe(true);
    });

    it('keeps the session for its own clients while others come to another listener and go', async () => {
      const { gate, lane, peer, opened, hung, isGivenUpFor } = await abandonedSetUp();
      gate.open(lane, PREAMBLE, CLIENT).end();
      await settle();
      peer.sendData(opened().at(-1) ?? 0, 'an answer', { fin: true });
      await settle();
      expect(lane.streams.size).toBe(0);
      expect(isGivenUpFor(hung)).toBe(false);
      vi.advanceTimersByTime(10_000);
      await settle();
      expect(isGivenUpFor(hung)).toBe(true);
    });

    it('keeps the session for a listener whose clients have left, too', async () => {
      const { gate, lane, isGivenUpFor } = await abandonedSetUp();
      gate.open(lane, PREAMBLE, CLIENT);
      const another = readyLane();
      for (const stream of fill(gate, another)) stream.end();
      await settle();
      expect([isGivenUpFor(another), isGivenUpFor(lane)]).toEqual([false, true]);
    });

    it('keeps the session for a listener that the agent has bound again for the same upstream', async () => {
      const { gate, lane, hung, isGivenUpFor } = await abandonedSetUp();
      gate.open(lane, PREAMBLE, CLIENT);
      gate.cut(hung, new Error('unbound'));
      expect([isGivenUpFor(readyLane('hung')), isGivenUpFor(lane)]).toEqual([false, true]);
    });
  });

  it('gives a stream whose client has ended its side and whose upstream is silent to the next client', async () => {
    await steerTimers();
    const { connection, gate, lane } = setUp();
    connection.extend(1_048_576);
    const reasons: unknown[] = [];
    const streams = Array.from({ length: 500 }, () => gate.open(lane, PREAMBLE, CLIENT));
    await settle();
    for (const stream of streams.slice(0, 2)) {
      stream.receiver = { onData() {}, onEnd() {}, onClosed: (error) => void reasons.push(error) };
      stream.end();
    }
    const open = () => gate.open(lane, PREAMBLE, CLIENT);
    expect(open).toThrow(StreamsExhausted);
    vi.advanceTimersByTime(1_000);
    await settle();
    open();
    open();
    expect(reasons).toEqual([expect.any(StreamsExhausted), expect.any(StreamsExhausted)]);
    expect(open).toThrow(StreamsExhausted);
  });

  it('keeps the stream that was freed for a client for that client', async () => {
    const { gate, peer, lane } = setUp();
    const other = '192.0.2.2';
    for (let count = 0; count < 500; count++) gate.open(lane, PREAMBLE, CLIENT);
    await settle();
    expect(() => gate.open(lane, PREAMBLE, other)).toThrow(StreamsExhausted);
    peer.sendData(2, '', { fin: true });
    await settle();
    expect(() => gate.open(lane, PREAMBLE, CLIENT)).toThrow(StreamsExhausted);
    gate.open(lane, PREAMBLE, other);
  });

  it('counts a stream for the client that uses it now', async () => {
    const { gate, lane } = setUp();
    const other = '192.0.2.2';
    const streams = Array.from({ length: 500 }, () => gate.open(lane, PREAMBLE, CLIENT));
    await settle();
    for (const stream of streams.slice(0, 400)) stream.usedBy(other);
    const before = lane.shares.of(other).size;
    expect(() => gate.open(lane, PREAMBLE, CLIENT)).toThrow(StreamsExhausted);
    expect([before, streams.filter(isDisplaced).map(({ client }) => client)]).toEqual([400, [other]]);
  });

  it('goes on counting a stream that was reset, until the agent has read that, must have noticed, and has sent after that', async () => {
    await steerTimers();
    const { connection, gate, user, peer, lane } = setUp();
    connection.trust(new MemoryBudget(Number.POSITIVE_INFINITY));
    const [read, sent] = [gateOf(), gateOf()];
    for (const { opened: echo } of [read, read, sent]) user.beat.mockImplementationOnce(() => echo.then(() => true));
    const [stream] = Array.from({ length: 500 }, () => gate.open(lane, PREAMBLE, CLIENT));
    await settle();
    stream?.abort();
    peer.sendData(2, Buffer.alloc(MAX_DISCARDED + 1));
    await settle();
    expect(lane.streams.size).toBe(499);
    const open = () => gate.open(lane, PREAMBLE, CLIENT);
    vi.advanceTimersByTime(3_000);
    expect(open).toThrow(StreamsExhausted);
    read.open();
    await settle();
    expect(open).toThrow(StreamsExhausted);
    vi.advanceTimersByTime(250);
    // It took long to answer, and so to notice.
    expect(open).toThrow(StreamsExhausted);
    vi.advanceTimersByTime(1_750);
    await settle();
    expect(open).toThrow(StreamsExhausted);
    sent.open();
    await settle();
    open();
  });

  it('goes on counting all that have ended: a busy agent may not have noticed hundreds', async () => {
    const { gate, user, peer, lane, opened } = setUp();
    const echo = gateOf();
    user.beat.mockImplementation(() => echo.opened.then(() => true));
    for (let round = 0; round < 9; round++) {
      const streams = Array.from({ length: 20 }, () => gate.open(lane, PREAMBLE, CLIENT));
      await until(() => opened().length === 20 * (round + 1), 'the streams');
      for (const stream of streams) stream.end();
      for (const id of opened().slice(-20)) peer.sendData(id, 'an answer', { fin: true });
      await until(() => lane.streams.size === 0, 'the ends');
    }
    const open = () => gate.open(lane, PREAMBLE, CLIENT);
    for (let count = 0; count < 320; count++) open();
    expect(open).toThrow(StreamsExhausted);
    echo.open();
    await settle();
    for (let count = 0; count < 180; count++) open();
    expect(open).toThrow(StreamsExhausted);
  });

  it('goes on counting streams that end when few are left, until the agent has echoed two heartbeats', async () => {
    const { gate, user, peer, lane, opened } = setUp();
    const echoes = [gateOf(), gateOf()];
    for (const { opened: echo } of echoes) user.beat.mockImplementationOnce(() => echo.then(() => true));
    const streams = Array.from({ length: 500 }, () => gate.open(lane, PREAMBLE, CLIENT));
    await settle();
    const ids = opened().slice(0, 20);
    for (const stream of streams.slice(0, 20)) stream.end();
    for (const id of ids) peer.sendData(id, '', { fin: true });
    await until(() => lane.streams.size === 480, 'the ends');
    const open = () => gate.open(lane, PREAMBLE, '192.0.2.2');
    expect(open).toThrow(StreamsExhausted);
    echoes[0]?.open();
    await settle();
    expect(open).toThrow(StreamsExhausted);
    expect([...lane.streams].filter(isDisplaced)).toEqual([]);
    echoes[1]?.open();
    await settle();
    for (let count = 0; count < 20; count++) open();
  });

  it('ends a session that accepts no stream for long while others wait', async () => {
    await steerTimers();
    const { gate, user, peer, lane, opened } = setUp();
    for (let count = 0; count < 40; count++) gate.open(lane, PREAMBLE, CLIENT);
    await settle();
    vi.advanceTimersByTime(9_000);
    takeHeader(peer, opened().slice(0, 1));
    await settle();
    vi.advanceTimersByTime(9_000);
    gate.open(lane, PREAMBLE, CLIENT);
    vi.advanceTimersByTime(1_000);
    expect(user.onStuck).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1_000);
    expect(user.onStuck).toHaveBeenCalledOnce();
  });

  it('refuses streams that wait for long while an upstream takes no more', async () => {
    await steerTimers();
    const { gate, user, peer, lane, opened } = setUp();
    const refused: unknown[] = [];
    for (let count = 0; count < 60; count++) {
      const onClosed = (error?: Error) => void refused.push(error);
      gate.open(lane, PREAMBLE, CLIENT).receiver = { onData() {}, onEnd() {}, onClosed };
    }
    for (let round = 0; round < 2; round++) {
      await settle();
      takeHeader(peer, opened().slice(round * 30, round * 30 + 30));
    }
    await settle();
    vi.advanceTimersByTime(20_000);
    expect(refused).toEqual(Array(4).fill(expect.any(StreamsExhausted)));
    expect([opened().length, user.onStuck.mock.calls]).toEqual([56, []]);
  });

  it('counts a stream that is ended for its memory until the agent has closed it', async () => {
    const { connection, gate, peer, lane } = setUp();
    const streams = Array.from({ length: 500 }, () => gate.open(lane, PREAMBLE, CLIENT));
    const reasons: string[] = [];
    for (const stream of streams) {
      stream.receiver = { onData() {}, onEnd() {}, onClosed: (error) => reasons.push(String(error)) };
    }
    await settle();
    streams[0]?.pause();
    peer.sendData(2, 'held');
    await settle();
    connection.reclaim();
    await settle();
    expect(reasons).toEqual(['Error: memory limit reached']);
    expect(peer.frames.filter(({ id }) => id === 2).at(-1)).toMatchObject({ fin: true });
    expect(() => gate.open(lane, PREAMBLE, CLIENT)).toThrow(StreamsExhausted);
    peer.sendData(2, '', { fin: true });
    await settle();
    gate.open(lane, PREAMBLE, CLIENT);
  });

  it('frees the slot of a stream aborted before it opened, without sending anything', async () => {
    const { gate, peer } = setUp();
    const lane = new Lane();
    const streams = Array.from({ length: 500 }, () => gate.open(lane, PREAMBLE, CLIENT));
    for (const stream of streams) stream.abort();
    await settle();
    gate.open(lane, PREAMBLE, CLIENT);
    expect(peer.frames).toEqual([]);
  });

  it('throws when the session has ended', () => {
    const { connection, gate, lane } = setUp();
    connection.close(new Error('over'));
    expect(() => gate.open(lane, PREAMBLE, CLIENT)).toThrow('the session has ended');
    expect(lane.streams.size).toBe(0);
  });

  it('closes every stream of a removed listener, and opens no more', async () => {
    const { gate, peer, lane } = setUp();
    const errors: string[] = [];
    for (let count = 0; count < 3; count++) {
      gate.open(lane, PREAMBLE, CLIENT).receiver = {
        onData() {},
        onEnd() {},
        onClosed: (error) => errors.push(String(error?.message)),
      };
    }
    await settle();
    gate.cut(lane, new Error('the endpoint is offline'));
    await settle();
    expect(errors).toEqual(['the endpoint is offline', 'the endpoint is offline', 'the endpoint is offline']);
    expect(peer.frames.filter((one) => one.fin).map((one) => one.id)).toEqual([2, 4, 6]);
    expect(() => gate.open(lane, PREAMBLE, CLIENT)).toThrow('the listener is offline');
  });

  it('says no more that a listener carries nothing once that was removed: another one may have its id', async () => {
    const { gate, peer, lane } = setUp();
    const drained = vi.fn();
    lane.drain(drained);
    gate.open(lane, PREAMBLE, CLIENT);
    await settle();
    gate.cut(lane, new Error('the endpoint is offline'));
    peer.sendData(2, '', { fin: true });
    await settle();
    expect(lane.streams.size).toBe(0);
    expect(drained).not.toHaveBeenCalled();
  });
});
