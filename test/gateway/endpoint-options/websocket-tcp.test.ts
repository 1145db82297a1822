import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import type { HttpListenerBuilder, Session } from '@ngrok/ngrok';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { Opcode } from '../../../src/lib/http/web-socket-frames.ts';
import { agentSession, startTestGateway, type TestGateway } from '../../support/gateway.ts';
import { ask } from '../../support/http-request.ts';
import { listening } from '../../support/loopback.ts';
import { clientFrame } from '../../support/web-socket-client-frame.ts';

let gateway: TestGateway;
let session: Session;
let upstream: Server;
let names = 0;
const sockets: Socket[] = [];

beforeAll(async () => {
  gateway = await startTestGateway();
  session = await agentSession(gateway).connect();
  // Not HTTP: sends first, echoes, and closes on command.
  upstream = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.push(socket);
    socket.write('ready\n');
    socket.on('data', (data) => (data.toString() === 'quit' ? socket.end('bye') : socket.write(data)));
    socket.on('end', () => socket.end());
    socket.on('error', () => {});
  });
  await listening(upstream);
});
afterAll(async () => {
  await session.close();
  await gateway.close();
  upstream.close();
});

type SetUp = (builder: HttpListenerBuilder) => unknown;

/** Binds an endpoint that converts WebSocket to TCP, and returns its name. */
async function bind(setUp: SetUp = () => {}, target = (upstream.address() as AddressInfo).port): Promise<string> {
  const host = `w${++names}.localhost`;
  const builder = session.httpEndpoint().domain(host).scheme('HTTP').websocketTcpConversion();
  setUp(builder);
  const listener = await builder.listen(false);
  listener.forward(`tcp://127.0.0.1:${target}`).catch(() => {});
  return host;
}

/** A connected client, and what it received. */
async function openWebSocket(host: string, protocols: string[] = [], headers = {}) {
  const url = `ws://127.0.0.1:${gateway.httpPort}/`;
  const client = new WebSocket(url, protocols, { headers: { host, ...headers } });
  let received = Buffer.alloc(0);
  client.on('message', (data: Buffer, binary) => {
    expect(binary).toBe(true);
    received = Buffer.concat([received, data]);
  });
  await once(client, 'open');
  const until = async (wanted: Buffer | string) => {
    while (!received.subarray(-wanted.length).equals(Buffer.from(wanted))) await once(client, 'message');
    return received.toString();
  };
  return { client, until };
}

/** The close code that the client gets. */
async function closeCode(client: WebSocket): Promise<number> {
  const [code] = (await once(client, 'close')) as [number];
  return code;
}

describe('websocketTcpConversion', () => {
  it('carries the bytes of text and binary messages in both directions, whichever side starts', async () => {
    const { client, until } = await openWebSocket(await bind());
    await until('ready\n');
    client.send('hello');
    expect(await until('hello')).toBe('ready\nhello');
    const large = Buffer.alloc(3_000_000, 'some large message ');
    client.send(large, { fin: false });
    client.send(Buffer.from('its end'), { fin: true });
    await until(Buffer.concat([large, Buffer.from('its end')]));
    client.terminate();
  });

  it('keeps bytes that a client sends right after its request', async () => {
    const socket = connect(gateway.httpPort, '127.0.0.1');
    const key = 'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n';
    const asked = `GET / HTTP/1.1\r\nHost: ${await bind()}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n${key}\r\n`;
    socket.write(Buffer.concat([Buffer.from(asked), clientFrame(Opcode.binary, Buffer.from('early'))]));
    let received = '';
    while (!received.includes('early')) received += String(await once(socket, 'data'));
    socket.destroy();
  });

  it('ends when the client closes, and closes the upstream connection', async () => {
    const { client, until } = await openWebSocket(await bind());
    await until('ready\n');
    const [socket] = sockets.slice(-1);
    client.close(4321);
    await Promise.all([once(socket as Socket, 'end'), closeCode(client)]);
  });

  it('ends when the upstream closes, after all its bytes', async () => {
    const { client, until } = await openWebSocket(await bind());
    const closed = closeCode(client);
    client.send(Buffer.from('quit'));
    await until('bye');
    expect(await closed).toBe(1000);
  });

  it('closes the upstream connection when the client disconnects', async () => {
    const { client, until } = await openWebSocket(await bind());
    await until('ready\n');
    const [socket] = sockets.slice(-1);
    const closed = once(socket as Socket, 'close');
    client.terminate();
    await closed;
  });

  it('closes when the upstream is unreachable', async () => {
    const closed = createServer();
    const port = await listening(closed);
    closed.close();
    await once(closed, 'close');
    const { client } = await openWebSocket(await bind(() => {}, port));
    client.on('message', () => expect.unreachable('the upstream is dead'));
    await closeCode(client);
  });

  it('answers pings, and accepts the binary subprotocol', async () => {
    const { client } = await openWebSocket(await bind(), ['binary', 'base64']);
    expect(client.protocol).toBe('binary');
    client.ping('now?');
    const [payload] = (await once(client, 'pong')) as [Buffer];
    expect(payload.toString()).toBe('now?');
    client.terminate();
  });

  it('works together with other options', async () => {
    const host = await bind((builder) => builder.basicAuth('ann', 'password1').responseHeader('x-added', 'yes'));
    await expect(openWebSocket(host)).rejects.toThrow('401');
    const authorization = `Basic ${Buffer.from('ann:password1').toString('base64')}`;
    const url = `ws://127.0.0.1:${gateway.httpPort}/`;
    const client = new WebSocket(url, { headers: { host, authorization } });
    const [{ headers }] = (await once(client, 'upgrade')) as [{ headers: Record<string, string> }];
    expect(headers['x-added']).toBe('yes');
    client.terminate();
  });

  it('rejects requests that are not WebSocket', async () => {
    const host = await bind();
    const plain = await ask(gateway.httpPort, host, { method: 'POST', body: 'x' });
    expect([plain.status, plain.headers['ngrok-error-code']]).toEqual([400, 'ERR_NGROK_3206']);
    const old = await exchange(host, 'Sec-WebSocket-Version: 8\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n');
    expect(old).toMatch(/^HTTP\/1.1 400 [\s\S]*sec-websocket-version: 13/);
    expect(await exchange(host, 'Sec-WebSocket-Version: 13\r\n')).toMatch(/^HTTP\/1.1 400 /);
  });

  it('closes with a reason when the client violates the protocol', async () => {
    const unmasked = await exchange(await bind(), KEY, Buffer.from([0x82, 0x01, 0x41]));
    expect(Buffer.from(unmasked, 'latin1').subarray(-4)).toEqual(Buffer.from([0x88, 0x02, 0x03, 0xea]));
  });
});

const KEY = 'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n';

/** Requests an upgrade on a raw connection and returns all bytes until it closes. */
async function exchange(host: string, headers: string, after = Buffer.alloc(0)): Promise<string> {
  const socket = connect(gateway.httpPort, '127.0.0.1').setEncoding('latin1');
  const head = `GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n${headers}\r\n`;
  socket.write(Buffer.concat([Buffer.from(head), after]));
  const all = await text(socket);
  socket.end();
  return all;
}
