import type { Socket } from 'node:net';
import { type Duplex, duplexPair } from 'node:stream';
import { expect, it } from 'vitest';
import { UpstreamStream } from '../../../../src/agent/connectors/native/upstream-stream.ts';
import { Channel, type ChannelHost } from '../../../../src/agent-protocol/channel.ts';
import { RoundTrip } from '../../../../src/agent-protocol/connection-meters.ts';
import { LARGEST_WINDOW } from '../../../../src/agent-protocol/credit-window.ts';
import { LinkUse } from '../../../../src/agent-protocol/heartbeat.ts';
import { settle, until } from '../../../support/until.ts';

/** A stream to an upstream, and what its session counts. */
function streamTo(connecting: Promise<Duplex>) {
  const credits: number[] = [];
  const counted = { bytes: 0, bulk: 0 };
  const host: ChannelHost = {
    turn: 0,
    peerHonoursReset: true,
    roundTrip: new RoundTrip(),
    largestWindow: LARGEST_WINDOW,
    ready() {},
    holds: (held) => void setImmediate(() => held.deliver()),
    memory: {
      room: LARGEST_WINDOW,
      add: (bytes) => {
        counted.bytes += bytes;
      },
      reserve() {},
    },
    windowIncrement: (_stream, increment) => void credits.push(increment),
    reset() {},
    forget() {},
    answersSoon() {},
    carriesBulk: () => void counted.bulk++,
    spread: () => false,
  };
  const channel = new Channel(host);
  channel.receiver = new UpstreamStream(channel, {
    connecting: connecting as Promise<Socket>,
    isHttp: true,
    traffic: undefined,
    onBytes: undefined,
    use: new LinkUse(),
    onClosed() {},
  });
  const receive = (piece: Buffer) => {
    channel.receiveHeader(piece.length);
    channel.receivePayload(piece);
  };
  return { channel, host, credits, counted, receive };
}

it('credits an upload in steps, also before the upstream has answered', async () => {
  const [socket, upstream] = duplexPair();
  upstream.resume();
  const { credits, receive } = streamTo(Promise.resolve(socket));
  const piece = Buffer.alloc(8192);
  for (let sent = 0; sent < 512 * 1024; sent += piece.length) {
    await settle();
    receive(piece);
  }
  // The first piece says that the stream is read.
  expect(credits[0]).toBe(piece.length);
  expect(credits.length).toBeLessThanOrEqual(1 + 512 / 64);
});

it('counts what waits for the upstream: until it is connected, and while it does not read', async () => {
  const [socket, upstream] = duplexPair();
  let connect: (socket: Duplex) => void = () => {};
  const { channel, counted, receive } = streamTo(
    new Promise((resolve) => {
      connect = resolve;
    }),
  );
  // The rest of the frame that had the header.
  channel.receiver.onData(Buffer.alloc(50_000));
  expect(counted.bytes).toBe(50_000);
  connect(socket);
  await settle();
  for (let count = 0; count < 10; count++) receive(Buffer.alloc(20_000));
  await settle();
  // Node buffers some of it at the upstream's end: 16 KiB, or 64 since version 22.
  expect(counted.bytes).toBeGreaterThan(150_000);
  upstream.resume();
  await until(() => counted.bytes === 0, 'the end of the upload');
});

it.each([
  ['the frames of an upload', 8192, true],
  ['small requests, one after another', 300, false],
])('%s: bytes by the megabyte are bulk or not', async (_, size, isBulk) => {
  const [socket, upstream] = duplexPair();
  upstream.resume();
  const { host, counted, receive } = streamTo(Promise.resolve(socket));
  // From now on, credit is granted ahead: far more than has arrived.
  host.roundTrip.add(1, performance.now());
  for (let sent = 0; sent < 2 * 1_048_576; sent += size) {
    await settle();
    receive(Buffer.alloc(size));
  }
  expect(counted.bulk > 0).toBe(isBulk);
});
