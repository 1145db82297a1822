import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { WebSocketStream } from '../../../../src/gateway/edge/proxy/websocket-stream.ts';
import { listening } from '../../../support/loopback.ts';
import { clientFrame } from '../../../support/web-socket-client-frame.ts';

/** More than the system buffers. */
const LARGE = Buffer.alloc(32 * 1_048_576, 'x');

/** Both ends of an established WebSocket connection. */
async function connected(pingEvery?: number): Promise<{ client: Socket; socket: Socket; stream: WebSocketStream }> {
  const server = createServer();
  await listening(server);
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
  const [socket] = (await once(server, 'connection')) as [Socket];
  onTestFinished(() => {
    client.destroy();
    socket.destroy();
    server.close();
  });
  return { client, socket, stream: new WebSocketStream(socket, pingEvery) };
}

it('applies back-pressure to the client without losing data', async () => {
  const { client, socket, stream } = await connected();
  const paused = once(socket, 'pause');
  client.write(clientFrame(2, LARGE));
  await paused;
  expect(client.writableLength).toBeGreaterThan(0);
  let length = 0;
  for await (const piece of stream) {
    length += piece.length;
    if (length === LARGE.length) break;
  }
  expect(length).toBe(LARGE.length);
});

it('applies back-pressure to the writer when the client does not read', async () => {
  const { client, stream } = await connected();
  let sent = false;
  const written = new Promise<void>((resolve) => {
    stream.write(LARGE, () => {
      sent = true;
      resolve();
    });
  });
  await once(client, 'readable');
  expect(sent).toBe(false);
  client.resume();
  await written;
});

it('pings an idle connection', async () => {
  const { client, stream } = await connected(10);
  const [frame] = (await once(client, 'data')) as [Buffer];
  expect(frame.subarray(0, 2)).toEqual(Buffer.from([0x89, 0x00]));
  client.write(clientFrame(10, Buffer.alloc(0)));
  await once(client, 'data');
  expect(stream.destroyed).toBe(false);
});
