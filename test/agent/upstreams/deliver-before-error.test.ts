import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { deliverBeforeError } from '../../../src/agent/upstreams/deliver-before-error.ts';
import { serving } from '../../support/loopback.ts';
import { until } from '../../support/until.ts';

const ANSWER = Buffer.alloc(20_000, 'answer ');
const UPLOAD = Buffer.alloc(65_536);

/** A connection to a peer that reads nothing. */
async function connected(): Promise<{ socket: Socket; peer: Socket; got: () => string[] }> {
  let accept: (peer: Socket) => void = () => {};
  const accepted = new Promise<Socket>((resolve) => {
    accept = resolve;
  });
  const options = { pauseOnConnect: true, allowHalfOpen: true };
  const port = await serving(net.createServer(options, (socket) => accept(socket.on('error', () => {}))));
  const socket = net.connect({ host: '127.0.0.1', port, allowHalfOpen: true });
  onTestFinished(() => void socket.destroy());
  await once(socket, 'connect');
  socket.pause();
  deliverBeforeError(socket);
  const events: string[] = [];
  let bytes = 0;
  socket
    .on('data', (piece) => {
      bytes += piece.length;
      if (bytes === ANSWER.length) events.push('answer');
    })
    .on('end', () => events.push('end'))
    .on('error', () => events.push('error'))
    .on('close', () => events.push('close'));
  return { socket, peer: await accepted, got: () => events };
}

/** Sends until the peer's kernel takes no more. */
async function fill(socket: Socket): Promise<void> {
  while (socket.write(UPLOAD));
  await until(() => socket.writableLength > 0, 'an upload that waits for its peer');
}

async function answer(peer: Socket): Promise<void> {
  await new Promise<void>((resolve) => peer.write(ANSWER, () => resolve()));
}

it('delivers the answer of a peer that resets the connection in the middle of an upload, then the error', async () => {
  const { socket, peer, got } = await connected();
  await fill(socket);
  await answer(peer);
  peer.resetAndDestroy();
  await until(() => socket.writableLength === 0, 'a write that fails');
  // What is written from now on goes nowhere, and does no harm.
  socket.write(UPLOAD);
  expect(got()).toEqual([]);
  socket.resume();
  await until(() => got().includes('close'), 'the end');
  // Node takes a reset that arrives with data for an end, unless a write fails before.
  expect(got().filter((event) => event !== 'end')).toEqual(['answer', 'error', 'close']);
});

it('delivers the end of a peer that ends its side before it resets the connection', async () => {
  const { socket, peer, got } = await connected();
  await fill(socket);
  await answer(peer);
  await new Promise<void>((resolve) => peer.end(resolve));
  peer.destroy();
  await until(() => socket.writableLength === 0, 'a write that fails');
  socket.resume();
  await until(() => got().includes('close'), 'the end');
  expect(got()).toEqual(['answer', 'end', 'error', 'close']);
});

it('delivers what was received when a reset is read before the reader wants more', async () => {
  const { socket, peer, got } = await connected();
  await answer(peer);
  await until(() => socket.readableLength > 0, 'a part of the answer');
  peer.resetAndDestroy();
  socket.read(0);
  socket.resume();
  await until(() => got().includes('close'), 'the end');
  expect(got()).toEqual(['answer', 'error', 'close']);
});

it('passes on errors at once when nothing is left to deliver', async () => {
  const { socket, peer, got } = await connected();
  peer.resetAndDestroy();
  socket.resume();
  await until(() => got().includes('close'), 'the end');
  expect(got()).toEqual(['error', 'close']);
});
