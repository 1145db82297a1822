import { EventEmitter, once } from 'node:events';
import { createServer } from 'node:http';
import { Agent } from 'node:https';
import { connect, createServer as createRawServer, type Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import type { EdgeRequest } from '../../../../src/gateway/edge/proxy/edge-request.ts';
import { collect, type DirectEndpoint, TestEdge } from '../../../support/edge.ts';

let edge: TestEdge;
let names = 0;

beforeAll(async () => {
  edge = await TestEdge.start();
});
afterAll(() => edge.close());

const newHost = () => `u${++names}.localhost`;

/** An upstream that echoes every message, and closes with 4000 on `close`. */
async function serveEcho(options: { protocol?: 'https'; policy?: object } = {}): Promise<DirectEndpoint> {
  const server = createServer((_req, res) => res.end('plain'));
  new WebSocketServer({ server }).on('connection', (socket, req) => {
    socket.on('message', (data, binary) => {
      if (String(data) === 'close') socket.close(4000, 'bye');
      else if (String(data) === 'headers') socket.send(JSON.stringify(req.rawHeaders));
      else socket.send(data, { binary });
    });
  });
  return edge.serve(newHost(), server, options);
}

async function open(host: string): Promise<WebSocket> {
  const socket = new WebSocket(`ws://127.0.0.1:${edge.httpPort}/chat?x=1`, { headers: { host } });
  await once(socket, 'open');
  return socket;
}

async function echo(socket: WebSocket, message: string | Buffer): Promise<Buffer> {
  socket.send(message);
  const [data] = (await once(socket, 'message')) as [Buffer];
  return data;
}

const HANDSHAKE =
  'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n';

describe('websockets', () => {
  it('carry messages of any size both ways, and the close code', async () => {
    const { host } = await serveEcho();
    const socket = await open(host);
    expect(String(await echo(socket, 'hello'))).toBe('hello');
    const large = Buffer.alloc(5_000_000, 'x');
    expect((await echo(socket, large)).equals(large)).toBe(true);
    socket.send('close');
    const [code, reason] = (await once(socket, 'close')) as [number, Buffer];
    expect([code, String(reason)]).toEqual([4000, 'bye']);
  });

  it('share the bandwidth of a client with gateway-limit-bandwidth, in each direction', async () => {
    // 500 kB/s to clients, 250 kB/s from them.
    const limit = { type: 'gateway-limit-bandwidth', config: { bandwidth: '4Mbit/2Mbit' } };
    const { host } = await serveEcho({ policy: { on_http_request: [{ actions: [limit] }] } });
    const [one, other] = [await open(host), await open(host)];
    const message = Buffer.alloc(100_000, 'x');
    const began = performance.now();
    const got = await Promise.all([echo(one, message), echo(other, message)]);
    expect(got.every((data) => data.equals(message))).toBe(true);
    expect(performance.now() - began).toBeGreaterThan((200_000 / 250) * 0.8);
    one.send('close');
    expect((await once(one, 'close'))[0]).toBe(4000);
    other.terminate();
  });

  it('forward the X-Forwarded headers', async () => {
    const { host } = await serveEcho();
    const socket = await open(host);
    const headers: string[] = JSON.parse(String(await echo(socket, 'headers')));
    socket.terminate();
    expect(headers).toEqual(expect.arrayContaining(['Sec-WebSocket-Version', 'X-Forwarded-For', '127.0.0.1', host]));
  });

  it('work over TLS', async () => {
    const { host } = await serveEcho({ protocol: 'https' });
    const socket = new WebSocket(`wss://127.0.0.1:${edge.httpsPort}/`, {
      headers: { host },
      agent: new Agent({ servername: host, ca: edge.ca.caPem }),
    });
    await once(socket, 'open');
    expect(String(await echo(socket, 'secret'))).toBe('secret');
    socket.terminate();
  });

  it('end on both sides when one side disconnects', async () => {
    const endpoint = await serveEcho();
    const socket = await open(endpoint.host);
    const stream = endpoint.streams[0];
    if (!stream) throw new Error('no stream was opened');
    const streamClosed = once(stream, 'close');
    socket.terminate();
    await streamClosed;
    const other = await open(endpoint.host);
    const closed = once(other, 'close');
    endpoint.streams[1]?.destroy();
    const [code] = (await closed) as [number];
    expect(code).toBe(1006);
  });

  it('are closed when their endpoint is removed', async () => {
    const endpoint = await serveEcho();
    const socket = await open(endpoint.host);
    const closed = once(socket, 'close');
    edge.remove(endpoint);
    await closed;
    expect(endpoint.streams.every((stream) => stream.destroyed)).toBe(true);
  });

  it('run the policy in both directions', async () => {
    const add = (name: string) => [{ actions: [{ type: 'add-headers', config: { headers: { [name]: 'policy' } } }] }];
    const policy = { on_http_request: add('x-request'), on_http_response: add('x-response') };
    const { host } = await serveEcho({ policy });
    const socket = new WebSocket(`ws://127.0.0.1:${edge.httpPort}/`, { headers: { host } });
    const upgraded = once(socket, 'upgrade');
    await once(socket, 'open');
    const [res] = (await upgraded) as [{ headers: Record<string, string> }];
    expect(res.headers['x-response']).toBe('policy');
    expect(JSON.parse(String(await echo(socket, 'headers')))).toContain('x-request');
    socket.terminate();
  });

  it('can be rejected by the policy without a stream to the upstream', async () => {
    const endpoint = await serveEcho({ policy: { on_http_request: [{ actions: [{ type: 'deny' }] }] } });
    const socket = new WebSocket(`ws://127.0.0.1:${edge.httpPort}/`, { headers: { host: endpoint.host } });
    const [error] = (await once(socket, 'error')) as [Error];
    expect(error.message).toContain('403');
    expect(endpoint.streams).toEqual([]);
  });
});

describe('an upgrade', () => {
  it('that the upstream declines gets the upstream’s response', async () => {
    const { host } = await edge.serve(newHost(), (_req, res) => res.writeHead(426, { 'content-length': 2 }).end('no'));
    const text = await edge.raw(`GET / HTTP/1.1\r\nHost: ${host}\r\n${HANDSHAKE}\r\n`);
    expect(text).toMatch(/^HTTP\/1\.1 426 .*no$/s);
  });

  it('to an unknown host gets a 404', async () => {
    const text = await edge.raw(`GET / HTTP/1.1\r\nHost: unknown.localhost\r\n${HANDSHAKE}\r\n`);
    expect(text).toMatch(/^HTTP\/1\.1 404 .*ERR_NGROK_3200/s);
  });

  it('to an unreachable upstream gets a 502', async () => {
    const { host } = await edge.serveRaw(
      newHost(),
      createRawServer((socket) => socket.destroy()),
    );
    const text = await edge.raw(`GET / HTTP/1.1\r\nHost: ${host}\r\n${HANDSHAKE}\r\n`);
    expect(text).toMatch(/^HTTP\/1\.1 502 /);
  });

  // Some servers strip more than a space and a tab.
  it.each(['h2c', 'h2', 'H2C', 'h2c\xa0', '\xa0h2c', 'h2c, websocket', 'websocket, h2c', 'TLS/1.2', 'other'])(
    'to %j is ignored, and the request is served',
    async (protocol) => {
      let upgrade: string | undefined = 'unset';
      const { host } = await edge.serve(newHost(), (req, res) => {
        upgrade = req.headers.upgrade;
        res.end('one');
      });
      const text = await edge.raw(
        `GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: ${protocol}\r\nHTTP2-Settings: AAMAAABk\r\n\r\n`,
      );
      expect(text).toMatch(/^HTTP\/1\.1 200 .*one$/s);
      expect(upgrade).toBeUndefined();
    },
  );

  it.each([
    ['websocket', 'Upgrade: h2c\r\n'],
    ['websocket', 'Upgrade: websocket\r\nUpgrade: h2c\r\n'],
    ['tcp', ''],
  ])('to %s gets a 502 when the upstream agrees with %j', async (protocol, agreed) => {
    const answer = `HTTP/1.1 101 Switching Protocols\r\n${agreed}Connection: Upgrade\r\n\r\n`;
    const { host } = await edge.serveRaw(
      newHost(),
      createRawServer((socket: Socket) => {
        socket.on('error', () => {}).on('data', () => socket.write(answer));
      }),
    );
    const text = await edge.raw(
      `GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: ${protocol}\r\n\r\n`,
    );
    expect(text).toMatch(/^HTTP\/1\.1 502 .*ERR_NGROK_3004/s);
  });

  it.each([HANDSHAKE, 'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAA\r\n'])(
    'with a body is a request like others (%j)',
    async (wish) => {
      const { host } = await edge.serve(newHost(), async (req, res) => {
        res.end(`${req.method} ${req.headers.upgrade} ${await collect(req)}`);
      });
      const head = `POST / HTTP/1.1\r\nHost: ${host}\r\n${wish}Content-Length: 3\r\n\r\n`;
      const next = `GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`;
      expect(await edge.raw(`${head}abc${next}`)).toMatch(/^HTTP\/1\.1 200 .*POST undefined abc.*GET undefined /s);
    },
  );

  it('keeps bytes that either side sends right after it', async () => {
    const received: Buffer[] = [];
    const server = createRawServer((socket: Socket) => {
      socket.on('error', () => {});
      socket.once('data', (head: Buffer) => {
        received.push(head.subarray(head.indexOf('\r\n\r\n') + 4));
        socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: tcp\r\nConnection: Upgrade\r\n\r\nfrom upstream');
        socket.on('data', (chunk: Buffer) => received.push(chunk)).on('end', () => socket.end(' the end'));
      });
    });
    const { host } = await edge.serveRaw(newHost(), server);
    const client = edge.connect();
    client.write(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nfrom client`);
    client.end();
    const text = (await collect(client)).toString();
    expect(text).toMatch(/^HTTP\/1\.1 101 Switching Protocols\r\n.*\r\n\r\nfrom upstream the end$/s);
    expect(Buffer.concat(received).toString()).toBe('from client');
  });
});

it('a client that disconnects during the TLS handshake affects no other', async () => {
  const { host } = await serveEcho({ protocol: 'https' });
  const socket = connectTls({ host: '127.0.0.1', port: edge.httpsPort, servername: host, ca: edge.ca.caPem });
  socket.on('error', () => {});
  socket.once('connect', () => socket.destroy());
  await once(socket, 'close');
  const good = connectTls({ host: '127.0.0.1', port: edge.httpsPort, servername: host, ca: edge.ca.caPem });
  await once(good, 'secureConnect');
  good.destroy();
});

it('converting WebSocket to TCP opens no stream for a client that has left while the policy ran', async () => {
  const endpoint = await edge.serveRaw(newHost(), createRawServer());
  const policy = new EventEmitter();
  const asked = once(policy, 'asked');
  const onHttpResponse = async (request: EdgeRequest) => {
    policy.emit('asked', request);
    await once(policy, 'answer');
  };
  Object.assign(endpoint, { websocketTcp: true, policy: { ...endpoint.policy, onHttpResponse } });
  const client = connect(edge.httpPort, '127.0.0.1');
  client.write(`GET / HTTP/1.1\r\nHost: ${endpoint.host}\r\n${HANDSHAKE}\r\n`);
  const [{ req }] = (await asked) as [EdgeRequest];
  client.destroy();
  await once(req.socket, 'close');
  policy.emit('answer');
  await nextTurn();
  expect(endpoint.streams).toEqual([]);
});
