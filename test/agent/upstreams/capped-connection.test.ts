import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { CappedConnection, tunnelCap } from '../../../src/agent/upstreams/capped-connection.ts';
import { parseBandwidth } from '../../../src/lib/bandwidth.ts';
import { listening } from '../../support/loopback.ts';
import { until } from '../../support/until.ts';

/** A connection with a cap, and the upstream's side of it. */
async function capped(bandwidth: string): Promise<{ connection: CappedConnection; inner: Socket; upstream: Socket }> {
  const server = createServer({ allowHalfOpen: true });
  await listening(server);
  const accepted = once(server, 'connection');
  const inner = connect({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', allowHalfOpen: true });
  await once(inner, 'connect');
  const [upstream] = (await accepted) as [Socket];
  upstream.on('error', () => {});
  const connection = new CappedConnection(inner, tunnelCap(parseBandwidth(bandwidth)));
  connection.on('error', () => {});
  onTestFinished(() => {
    connection.destroy();
    upstream.destroy();
    server.close();
  });
  return { connection, inner, upstream };
}

/** Unlike a loop over the socket, this leaves its other direction alone. */
async function bytesOf(socket: Socket): Promise<Buffer> {
  const pieces: Buffer[] = [];
  socket.on('data', (piece: Buffer) => pieces.push(piece));
  await once(socket, 'end');
  return Buffer.concat(pieces);
}

it('a connection with a cap loses no byte, and ends each direction in order', async () => {
  const { connection, upstream } = await capped('16Mbit');
  const [up, down] = [Buffer.alloc(200_000, 'u'), Buffer.alloc(150_000, 'd')];
  const closed = once(connection, 'close');
  const read = [bytesOf(connection), bytesOf(upstream)];
  upstream.end(up);
  connection.write(down.subarray(0, 70_000));
  connection.end(down.subarray(70_000));
  const [gotUp, gotDown] = await Promise.all(read);
  expect(gotUp?.equals(up)).toBe(true);
  expect(gotDown?.equals(down)).toBe(true);
  expect([connection.readableEnded, connection.writableFinished]).toEqual([true, true]);
  await closed;
});

it('a direction without a cap is not slowed down', async () => {
  const { connection, upstream } = await capped('unlimited/8kbit');
  upstream.end(Buffer.alloc(2_000_000));
  expect((await bytesOf(connection)).length).toBe(2_000_000);
});

it('what may not pass is not read from the upstream, and not taken from clients', async () => {
  const { connection, inner, upstream } = await capped('80kbit');
  connection.resume();
  const isTaken = upstream.write(Buffer.alloc(64 * 1024 * 1024));
  expect(isTaken).toBe(false);
  let written = 0;
  while (connection.write(Buffer.alloc(16 * 1024))) written += 1;
  expect(written).toBeLessThan(8);
  await delay(300);
  expect(inner.bytesRead).toBeLessThan(200_000);
  expect(upstream.bytesRead).toBeLessThan(10_000);
  expect(connection.bytesRead).toBe(inner.bytesRead);
});

it('a broken connection breaks the other side, with pieces that wait for their turn', async () => {
  const one = await capped('8kbit');
  one.connection.resume();
  one.upstream.write(Buffer.alloc(100_000));
  await until(() => one.inner.bytesRead > 0, 'the first bytes');
  const broken = once(one.connection, 'close').catch(() => {});
  one.upstream.resetAndDestroy();
  one.connection.write(Buffer.alloc(50_000));
  await broken;
  expect(one.connection.readableEnded).toBe(false);
  const two = await capped('8kbit');
  two.upstream.write(Buffer.alloc(100_000));
  two.connection.write(Buffer.alloc(50_000));
  two.upstream.resume();
  const closed = once(two.connection, 'close');
  two.connection.resetAndDestroy();
  await closed;
  await until(() => two.inner.closed && !two.upstream.readable, 'the upstream to see it');
});
