import { once } from 'node:events';
import { Duplex, duplexPair } from 'node:stream';
import fc from 'fast-check';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { type Channel, type ChannelReceiver, MAX_DISCARDED } from '../../src/agent-protocol/channel.ts';
import { Connection } from '../../src/agent-protocol/connection.ts';
import { HeartbeatEcho } from '../../src/agent-protocol/heartbeat.ts';
import { WINDOW } from '../../src/agent-protocol/receive-credit.ts';
import { MemoryBudget } from '../../src/lib/memory-budget.ts';
import { settle, until } from '../support/until.ts';
import { MuxPeer } from './mux-peer.ts';

class Recorder implements ChannelReceiver {
  received = 0;
  events: string[] = [];
  onData(payload: Buffer): void {
    this.received += payload.length;
  }
  onEnd(): void {
    this.events.push('end');
  }
  onDrain(): void {
    this.events.push('drain');
  }
  onClosed(error?: Error): void {
    this.events.push(error ? `closed: ${error.message}` : 'closed');
  }
}

function connect(accept: (channel: Channel) => void = () => {}, budget = Number.POSITIVE_INFINITY) {
  const [socket, far] = duplexPair();
  const ended: Error[] = [];
  const connection = new Connection(socket, { accept, ended: (reason) => ended.push(reason) });
  connection.trust(new MemoryBudget(budget));
  connection.start();
  return { connection, peer: new MuxPeer(far), ended, socket };
}

/** Opens a stream from our side. */
function open(connection: Connection) {
  const recorder = new Recorder();
  const channel = connection.channel();
  channel.receiver = recorder;
  connection.open(channel);
  return { channel, recorder };
}

describe('Connection: sending', () => {
  it('sends all writes of one turn in one frame, with SYN and FIN', async () => {
    const { connection, peer } = connect();
    const { channel } = open(connection);
    channel.write(Buffer.from('GET / HTTP/1.1\r\n\r\n'));
    channel.write(Buffer.from('body'));
    channel.end();
    await settle();
    expect(peer.frames).toMatchObject([{ kind: 'data', id: 2, syn: true, fin: true }]);
    expect(peer.received(2).toString()).toBe('GET / HTTP/1.1\r\n\r\nbody');
  });

  it('sends the frames of many streams in one write to the socket', async () => {
    const { connection, peer } = connect();
    for (let count = 0; count < 50; count++) open(connection).channel.write(Buffer.from('x'));
    await settle();
    expect(peer.frames.map(({ id }) => id)).toEqual(Array.from({ length: 50 }, (_, at) => 2 + 2 * at));
    expect(peer.chunks).toHaveLength(1);
  });

  it('stops at the end of the window and continues when it gets credit', async () => {
    const { connection, peer } = connect();
    const { channel, recorder } = open(connection);
    const sent = Buffer.alloc(WINDOW + 1000, 'abcdefg');
    expect(channel.write(sent)).toBe(false);
    channel.end();
    await settle();
    expect(peer.received(2).length).toBe(WINDOW);
    expect(recorder.events).not.toContain('closed');
    peer.send.windowIncrement(2, 0x7fffffff);
    peer.flush();
    await settle();
    expect(peer.received(2).equals(sent)).toBe(true);
    expect(peer.frames.at(-1)).toMatchObject({ fin: true });
  });

  it('waits for larger credit while more is queued, and always sends the last bytes', async () => {
    const { connection, peer } = connect();
    const { channel } = open(connection);
    const [step, rest] = [65_536, 1000];
    channel.write(Buffer.alloc(WINDOW + step + rest));
    await settle();
    const credit = async (bytes: number) => {
      peer.send.windowIncrement(2, bytes);
      peer.flush();
      await settle();
      return peer.received(2).length - WINDOW;
    };
    expect(await credit(8192)).toBe(0);
    expect(await credit(step - 8192)).toBe(step);
    expect(await credit(rest)).toBe(step + rest);
  });

  it('never exceeds the window, and sends everything once the peer has credited what it read', async () => {
    const step = fc.oneof(
      fc.record({ write: fc.integer({ min: 1, max: 200_000 }) }),
      fc.record({ credit: fc.integer({ min: 1, max: 300_000 }) }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 15 }), async (steps) => {
        const { connection, peer } = connect();
        const { channel } = open(connection);
        let written = 0;
        let credited = 0;
        const credit = async (wanted: number) => {
          const bytes = Math.min(wanted, peer.received(2).length - credited);
          if (bytes === 0) return;
          credited += bytes;
          peer.send.windowIncrement(2, bytes);
          peer.flush();
          await settle();
        };
        for (const one of steps) {
          if ('write' in one) {
            channel.write(Buffer.alloc(one.write, 1));
            written += one.write;
            await settle();
          } else await credit(one.credit);
          expect(peer.received(2).length).toBeLessThanOrEqual(credited + WINDOW);
        }
        while (credited < peer.received(2).length) await credit(8192);
        expect(peer.received(2).length).toBe(written);
      }),
      { numRuns: 40 },
    );
  });

  it('keeps its buffer bounded while the socket is not drained', async () => {
    const socket = new Duplex({ read() {}, write() {} });
    const connection = new Connection(socket, { accept() {}, ended() {} });
    connection.trust(new MemoryBudget(Number.POSITIVE_INFINITY));
    connection.start();
    for (let count = 0; count < 100; count++) open(connection).channel.write(Buffer.alloc(100_000));
    await settle();
    expect(socket.writableLength).toBeLessThan(400_000);
  });
});

describe('Connection: receiving', () => {
  function accepting() {
    const recorders: Recorder[] = [];
    const channels: Channel[] = [];
    const set = connect((channel) => {
      const recorder = new Recorder();
      channel.receiver = recorder;
      recorders.push(recorder);
      channels.push(channel);
    });
    return { ...set, recorders, channels };
  }

  it('credits received bytes in large steps', async () => {
    const { peer, recorders } = accepting();
    peer.sendData(3, Buffer.alloc(WINDOW), { syn: true });
    await settle();
    const credited = () => peer.frames.filter((one) => one.kind === 'credit');
    expect(credited().reduce((sum, one) => sum + one.increment, 0)).toBe(WINDOW);
    expect(credited().length).toBeLessThanOrEqual(4);
    peer.sendData(3, Buffer.alloc(WINDOW), { fin: true });
    await settle();
    expect(recorders[0]).toMatchObject({ received: 2 * WINDOW, events: ['end'] });
  });

  it('withholds credit while the receiver is paused, and grants all of it on resume', async () => {
    const { peer, channels } = accepting();
    peer.sendData(3, '', { syn: true });
    await settle();
    channels[0]?.pause();
    peer.sendData(3, Buffer.alloc(200_000));
    await settle();
    expect(peer.frames).toEqual([]);
    channels[0]?.resume();
    await settle();
    expect(peer.frames).toMatchObject([{ kind: 'credit', id: 3, increment: 200_000 }]);
  });

  it('sends a frame without effect after a read that caused no write', async () => {
    const { peer } = accepting();
    peer.sendData(3, 'abc', { syn: true });
    await settle();
    expect(peer.kicks).toBe(1);
    expect(peer.frames).toEqual([]);
  });

  it('sends no such frame when it wrote something or read nothing', async () => {
    const { peer, connection } = connect((channel) => {
      channel.receiver = { onData: (payload) => void channel.write(payload), onEnd() {} };
    });
    open(connection);
    peer.sendData(3, 'ping', { syn: true });
    await settle();
    expect(peer.kicks).toBe(0);
    expect(peer.received(3).toString()).toBe('ping');
  });

  it('sends no such frame before the answer to a request, unless that takes long', async () => {
    const requests: Channel[] = [];
    const { peer } = connect((channel) => {
      channel.receiver = { onData: () => channel.answersSoon(), onEnd() {} };
      requests.push(channel);
    });
    peer.sendData(3, 'request', { syn: true });
    await settle();
    requests[0]?.write(Buffer.from('answer'));
    await settle();
    expect([peer.kicks, peer.received(3).toString()]).toEqual([0, 'answer']);
    peer.sendData(5, 'request', { syn: true });
    await until(() => peer.kicks === 1, 'the frame');
  });

  it('resets a closed stream that gets more data, and ignores a bare FIN', async () => {
    const { peer } = accepting();
    peer.sendData(9, '', { fin: true });
    await settle();
    expect(peer.frames).toEqual([]);
    peer.sendData(9, 'late');
    await settle();
    expect(peer.frames).toMatchObject([{ kind: 'reset', id: 9 }]);
  });

  it.each([
    ['more data than the window allows', (peer: MuxPeer) => peer.sendData(3, Buffer.alloc(WINDOW + 1), { syn: true })],
    ['an even stream id', (peer: MuxPeer) => peer.sendData(4, 'x', { syn: true })],
    [
      'a stream id in use',
      (peer: MuxPeer) => {
        peer.sendData(3, 'x', { syn: true });
        peer.sendData(3, 'x', { syn: true });
      },
    ],
    [
      'more streams than the limit',
      (peer: MuxPeer) => {
        for (let id = 3; id < 200; id += 2) peer.sendData(id, 'x', { syn: true });
      },
    ],
    ['garbage', (peer: MuxPeer) => peer.socket.write('GET / HTTP/1.1\r\nHost: gateway\r\n\r\n')],
  ])(
    'closes the connection on %s without sending GOAWAY, which costs SDKs a file descriptor',
    async (_what, misbehave) => {
      const { peer, ended, socket } = accepting();
      misbehave(peer);
      await once(socket, 'close');
      expect(ended).toHaveLength(1);
      expect(peer.frames).not.toContainEqual(expect.objectContaining({ kind: 'goaway' }));
    },
  );

  it('ends when the peer provokes answers and does not read them', async () => {
    const { ended, far } = connectUnread();
    const provoke = Buffer.alloc(9 * 4096);
    for (let at = 0; at < provoke.length; at += 9) provoke.set([0, 0, 1, 0x10, 0, 0, 0, 99, 0], at);
    for (let round = 0; round < 400 && ended.length === 0; round++) {
      far.write(provoke);
      await settle();
    }
    expect(ended[0]?.message).toBe('the peer does not read');
  });

  function connectUnread(): { ended: Error[]; far: Duplex } {
    const [socket, far] = duplexPair();
    const ended: Error[] = [];
    const connection = new Connection(socket, { accept() {}, ended: (reason) => ended.push(reason) });
    connection.trust(new MemoryBudget(Number.POSITIVE_INFINITY));
    connection.start();
    return { ended, far };
  }
});

describe('Connection: bulk', () => {
  const KIB = 1024;

  /** When a stream counts as bulk to which a peer sends `kib` every so many milliseconds; null: it does not. */
  async function bulkAt(kib: number, everyMs: number, frameKib = kib): Promise<number | null> {
    vi.useFakeTimers({ toFake: ['performance'] });
    onTestFinished(() => void vi.useRealTimers());
    const [socket, far] = duplexPair();
    const seen: number[] = [];
    const carriesBulk = () => void seen.push(performance.now() - startedAt);
    const connection = new Connection(socket, { accept: () => {}, carriesBulk, ended: () => {} });
    connection.trust(new MemoryBudget(Number.POSITIVE_INFINITY));
    connection.start();
    const peer = new MuxPeer(far);
    open(connection);
    await settle();
    // The stream has been idle until then.
    vi.advanceTimersByTime(60_000);
    const startedAt = performance.now();
    for (let ms = 0; ms < 20_000 && seen.length === 0; ms += everyMs) {
      vi.advanceTimersByTime(everyMs);
      for (let sent = 0; sent < kib; sent += frameKib) peer.sendData(2, Buffer.alloc(frameKib * KIB));
      await settle();
    }
    return seen[0] ?? null;
  }

  it.each([
    ['of 0.4 MB/s after 0.64 s', 64, 160, 640],
    ['of 0.2 MB/s after 0.96 s', 64, 320, 960],
    ['of 10 MB/s after 1 MiB', 64, 6, 96],
  ])('counts a transfer %s', async (_when, kib, everyMs, at) => {
    expect(await bulkAt(kib, everyMs)).toBe(at);
  });

  it.each([
    ['128 KiB every 2 s', [128, 2_000]],
    ['messages of 1 KiB, whatever they are together', [64, 160, 1]],
  ] as [string, [number, number, number?]][])('does not count %s', async (_what, sent) => {
    expect(await bulkAt(...sent)).toBeNull();
  });
});

describe('Connection: peers that use too much', () => {
  /** One-byte DATA frames of a stream. */
  function tinyFrames(id: number, count: number): Buffer {
    const frames = Buffer.alloc(9 * count);
    for (let at = 0; at < frames.length; at += 9) frames.set([0, 0, 1, 0x10, 0, 0, 0, id, at & 0xff], at);
    return frames;
  }

  it('ends a connection that sends more than it needs before authentication, also in pieces of one byte', async () => {
    for (const size of [1, 9000]) {
      const [socket, far] = duplexPair();
      const ended: Error[] = [];
      const echo = (channel: Channel) => {
        channel.receiver = new HeartbeatEcho(channel);
      };
      new Connection(socket, { accept: echo, ended: (reason) => ended.push(reason) }).start();
      far.write(Buffer.from('000000120000000b', 'hex'));
      let sent = 0;
      for (const frames = tinyFrames(11, 20_000); ended.length === 0 && sent < frames.length; sent += size) {
        far.write(frames.subarray(sent, sent + size));
        await settle();
      }
      expect(ended.map(String)).toEqual(['Error: too much sent before authentication']);
      expect(sent).toBeLessThan(20_000);
    }
  });

  it('joins what arrives in tiny frames while the receiver is paused, and passes it on later', async () => {
    const { connection, peer } = connect();
    const pieces: Buffer[] = [];
    const channel = connection.channel();
    channel.receiver = { onData: (piece) => void pieces.push(piece), onEnd() {} };
    connection.open(channel);
    await settle();
    channel.pause();
    peer.socket.write(tinyFrames(2, WINDOW));
    await until(() => channel.memory === WINDOW, 'the whole window is held');
    expect(pieces).toEqual([]);
    expect(peer.frames.filter(({ kind }) => kind === 'credit')).toEqual([]);
    channel.resume();
    await until(() => peer.frames.some(({ kind }) => kind === 'credit'), 'credit');
    expect(pieces.length).toBeLessThan(100);
    const content = Buffer.concat(pieces);
    expect(content.length).toBe(WINDOW);
    expect(content.every((byte, at) => byte === ((9 * at) & 0xff))).toBe(true);
    expect(channel.memory).toBe(0);
  });

  it.each(['a FIN', 'the loss of the connection'])(
    'passes on what it holds for a paused receiver before %s',
    async (end) => {
      const { connection, peer, socket } = connect();
      const { channel, recorder } = open(connection);
      await settle();
      channel.pause();
      peer.sendData(2, 'held', { fin: end === 'a FIN' });
      await settle();
      if (end !== 'a FIN') {
        expect(recorder.received).toBe(0);
        socket.destroy();
        await once(socket, 'close');
      }
      expect(recorder.received).toBe(4);
      expect(recorder.events.at(-1)).toBe(end === 'a FIN' ? 'end' : 'closed: connection closed by the peer');
    },
  );

  it('passes tiny frames of one turn on in few pieces', async () => {
    const { connection, peer } = connect();
    let pieces = 0;
    const channel = connection.channel();
    channel.receiver = { onData: () => void pieces++, onEnd() {} };
    connection.open(channel);
    await settle();
    peer.socket.write(tinyFrames(2, 400));
    await settle();
    expect(channel.memory).toBe(0);
    expect(pieces).toBeLessThan(20);
  });

  it('decodes a limited number of frames in a turn, and all of them in the end', async () => {
    const { connection, peer } = connect();
    const { recorder } = open(connection);
    await settle();
    peer.socket.write(tinyFrames(2, 100_000));
    await until(() => recorder.received > 0, 'the first frames');
    expect(recorder.received).toBeLessThan(1000);
    await until(() => recorder.received === 100_000, 'all frames');
  });

  it('ends a connection that opens and resets stream after stream', async () => {
    const { peer, ended } = connect((channel) => {
      channel.receiver = { onData() {}, onEnd() {} };
    });
    for (let id = 3; id < 10_000 && ended.length === 0; id += 2) {
      peer.send.data(id, [], 0, { syn: true, fin: false });
      peer.send.reset(id, 6);
      peer.flush();
      if (id % 100 === 1) await settle();
    }
    expect(ended.map(({ message }) => message)).toEqual(['too many frames for streams that come to nothing']);
  });

  it('counts what waits in the socket of a peer that does not read', async () => {
    const budget = new MemoryBudget(Number.POSITIVE_INFINITY);
    const socket = new Duplex({ read() {}, write() {} });
    const connection = new Connection(socket, { accept() {}, ended() {} });
    connection.trust(budget);
    connection.start();
    for (let count = 0; count < 4; count++) open(connection).channel.write(Buffer.alloc(WINDOW));
    await settle();
    expect(budget.held).toBeGreaterThanOrEqual(4 * WINDOW);
    connection.close(new Error('over'));
    expect(budget.held).toBe(0);
  });

  it('resets the stream that holds the most at the memory limit, so that the peer notices; the others continue', async () => {
    const { connection, peer, ended } = connect(undefined, 300_000);
    const [first, second] = [open(connection), open(connection)];
    await settle();
    for (const { channel } of [first, second]) channel.pause();
    peer.sendData(2, Buffer.alloc(200_000));
    peer.sendData(4, Buffer.alloc(150_000));
    await settle();
    expect(first.recorder).toMatchObject({ received: 0, events: ['closed: memory limit reached'] });
    expect(peer.frames.filter(({ kind }) => kind !== 'data')).toMatchObject([
      { kind: 'reset', id: 2 },
      { kind: 'credit', id: 2 },
    ]);
    second.channel.resume();
    await settle();
    expect(second.recorder).toMatchObject({ received: 150_000, events: [] });
    expect(ended).toEqual([]);
  });
});

describe('Connection: endings', () => {
  it('closes a stream once both sides have sent FIN, in either order', async () => {
    const { connection, peer } = connect();
    const first = open(connection);
    const second = open(connection);
    first.channel.end();
    peer.sendData(4, '', { fin: true });
    await settle();
    expect([first.recorder.events, second.recorder.events]).toEqual([['drain'], ['end']]);
    second.channel.end();
    peer.sendData(2, 'rest', { fin: true });
    await settle();
    expect(first.recorder).toMatchObject({ received: 4, events: ['drain', 'end', 'closed'] });
    expect(second.recorder.events).toEqual(['end', 'drain', 'closed']);
  });

  it('aborts a stream with FIN, and adds RST only when more than the rest of a short answer arrives', async () => {
    const { connection, peer } = connect();
    const quiet = open(connection);
    const chatty = open(connection);
    await settle();
    quiet.channel.abort();
    chatty.channel.abort();
    await settle();
    peer.sendData(2, 'a short answer', { fin: true });
    peer.sendData(4, Buffer.alloc(MAX_DISCARDED));
    await settle();
    expect(peer.frames.filter((one) => one.kind === 'reset')).toEqual([]);
    peer.sendData(4, 'more');
    await settle();
    expect(peer.frames.filter((one) => one.kind === 'reset')).toMatchObject([{ id: 4 }]);
    expect(peer.frames.filter((one) => one.fin).map(({ id }) => id)).toEqual([2, 4]);
    expect(quiet.recorder).toMatchObject({ received: 0, events: ['drain', 'closed'] });
    expect(chatty.recorder).toMatchObject({ received: 0, events: ['drain', 'closed'] });
  });

  it('sends nothing for a stream that is aborted before its first frame', async () => {
    const { connection, peer } = connect();
    const { channel, recorder } = open(connection);
    channel.write(Buffer.from('header'));
    channel.abort();
    const next = open(connection);
    next.channel.write(Buffer.from('header'));
    await settle();
    expect(peer.frames).toMatchObject([{ kind: 'data', id: 4, syn: true }]);
    expect(recorder.events).toEqual(['closed']);
  });

  it('grants credit with an abort and after a reset, so that a peer without credit notices them', async () => {
    const { connection, peer } = connect();
    const { channel } = open(connection);
    channel.pause();
    await settle();
    peer.sendData(2, Buffer.alloc(WINDOW));
    await settle();
    channel.abort();
    await settle();
    expect(peer.frames.slice(1)).toMatchObject([{ kind: 'credit', increment: WINDOW }, { fin: true }]);
    peer.sendData(2, Buffer.alloc(MAX_DISCARDED + 1));
    await settle();
    expect(peer.frames.slice(3)).toMatchObject([{ kind: 'reset' }, { kind: 'credit' }]);
  });

  it('closes every stream when the connection is lost, and rejects new ones', async () => {
    const { connection, ended, socket } = connect();
    const { recorder } = open(connection);
    await settle();
    socket.destroy();
    await once(socket, 'close');
    expect(recorder.events).toEqual(['closed: connection closed by the peer']);
    expect(ended).toHaveLength(1);
    expect(open(connection).recorder.events).toEqual(['closed: the session has ended']);
  });

  it('ends when it receives GOAWAY', async () => {
    const { peer, ended, socket } = connect();
    peer.socket.write(Buffer.from('00000830000000000000000000000000', 'hex'));
    await once(socket, 'close');
    expect(ended.map(String)).toEqual(['Error: GOAWAY received']);
  });
});
