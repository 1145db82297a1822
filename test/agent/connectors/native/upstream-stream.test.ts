import type { Socket } from 'node:net';
import { duplexPair } from 'node:stream';
import { expect, it } from 'vitest';
import { UpstreamStream } from '../../../../src/agent/connectors/native/upstream-stream.ts';
import { Channel, type ChannelHost } from '../../../../src/agent-protocol/channel.ts';
import { LARGEST_WINDOW } from '../../../../src/agent-protocol/growing-window.ts';
import { RoundTrip } from '../../../../src/agent-protocol/round-trip.ts';
import { settle } from '../../../support/until.ts';

it('credits an upload in steps, also before the upstream has answered', async () => {
  const credits: number[] = [];
  const host: ChannelHost = {
    turn: 0,
    peerHonoursReset: true,
    roundTrip: new RoundTrip(),
    largestWindow: LARGEST_WINDOW,
    room: LARGEST_WINDOW,
    ready() {},
    holds() {},
    hold() {},
    promise() {},
    windowIncrement: (_stream, increment) => void credits.push(increment),
    reset() {},
    forget() {},
    carriesBulk() {},
  };
  const channel = new Channel(host);
  const [socket, upstream] = duplexPair();
  upstream.resume();
  channel.receiver = new UpstreamStream(channel, {
    connecting: Promise.resolve(socket as Socket),
    isHttp: true,
    traffic: undefined,
    onClosed() {},
  });
  const piece = Buffer.alloc(8192);
  for (let sent = 0; sent < 512 * 1024; sent += piece.length) {
    await settle();
    channel.receiveHeader(piece.length);
    channel.receivePayload(piece);
  }
  // The first piece says that the stream is read.
  expect(credits[0]).toBe(piece.length);
  expect(credits.length).toBeLessThanOrEqual(1 + 512 / 64);
});
