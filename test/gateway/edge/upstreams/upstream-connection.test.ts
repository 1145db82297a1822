import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer as createRawServer, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { collect, type DirectEndpoint, TestEdge } from '../../../support/edge.ts';
import { ask } from '../../../support/http-request.ts';
import { until } from '../../../support/until.ts';

let edge: TestEdge;
let names = 0;

beforeAll(async () => {
  edge = await TestEdge.start();
});
afterAll(() => edge.close());

const newHost = () => `c${++names}.localhost`;

async function serve(handler: (req: IncomingMessage, res: ServerResponse) => void): Promise<DirectEndpoint> {
  return edge.serve(newHost(), handler);
}

/** An upstream that answers every request with these bytes. */
async function serveBytes(answer: string): Promise<DirectEndpoint> {
  const server = createRawServer((socket: Socket) => {
    socket.on('error', () => {});
    socket.on('data', () => socket.write(answer, 'latin1'));
  });
  return edge.serveRaw(newHost(), server);
}

async function askTwice(endpoint: DirectEndpoint): Promise<string[]> {
  const first = await ask(edge.httpPort, endpoint.host);
  const second = await ask(edge.httpPort, endpoint.host);
  return [first.body, second.body];
}

describe('a stream is reused', () => {
  it.each([
    ['a body of known length', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'],
    ['chunks', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n'],
    ['HTTP/1.0 and keep-alive', 'HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok'],
  ])('after a response with %s', async (_what, bytes) => {
    const endpoint = await serveBytes(bytes);
    const [first, second] = await askTwice(endpoint);
    expect(second).toBe(first);
    expect(endpoint.streams).toHaveLength(1);
  });
});

describe('a stream is not reused', () => {
  it.each([
    ['says that it closes', 'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok'],
    ['is HTTP/1.0', 'HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok'],
    ['would be kept for a moment only', 'HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 2\r\n\r\nok'],
    [
      'comes with a second one',
      'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil',
    ],
  ])('after a response that %s', async (_what, bytes) => {
    const endpoint = await serveBytes(bytes);
    expect(await askTwice(endpoint)).toEqual(['ok', 'ok']);
    expect(endpoint.streams).toHaveLength(2);
    expect(endpoint.streams[0]?.destroyed).toBe(true);
  });

  it('after unsolicited bytes from the upstream', async () => {
    const sockets: Socket[] = [];
    const server = createRawServer((socket) => {
      sockets.push(socket);
      socket.on('error', () => {});
      socket.on('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'));
    });
    const endpoint = await edge.serveRaw(newHost(), server);
    await ask(edge.httpPort, endpoint.host);
    const closed = once(endpoint.streams[0] as Socket, 'close');
    sockets[0]?.write('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil');
    await closed;
    expect((await ask(edge.httpPort, endpoint.host)).body).toBe('ok');
    expect(endpoint.streams).toHaveLength(2);
  });

  it('after a while, unless the request is repeatable: the upstream may be about to close it', async () => {
    const server = createRawServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', () => {
        socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
        socket.once('data', () => socket.end());
      });
    });
    const endpoint = await edge.serveRaw(newHost(), server);
    await ask(edge.httpPort, endpoint.host);
    const now = performance.now.bind(performance);
    const later = vi.spyOn(performance, 'now').mockImplementation(() => now() + 1500);
    onTestFinished(() => later.mockRestore());
    const answer = await ask(edge.httpPort, endpoint.host, { method: 'POST', body: 'once' });
    expect([answer.status, answer.body]).toEqual([200, 'ok']);
    expect(endpoint.streams).toHaveLength(2);
    // A repeatable one uses the idle stream and, if that is stale, a new one.
    expect((await ask(edge.httpPort, endpoint.host)).body).toBe('ok');
    expect(endpoint.streams).toHaveLength(3);
  });

  it("after a response to an incomplete request, while the client's connection is reused", async () => {
    const endpoint = await serve((req, res) => {
      if (req.method === 'GET') res.end('next');
      else res.writeHead(413, { 'content-length': 2 }).end('no');
    });
    const { host } = endpoint;
    const socket = edge.connect();
    socket.write(`POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 10\r\n\r\nhello`);
    const [early] = (await once(socket, 'data')) as [Buffer];
    expect(early.toString()).toMatch(/^HTTP\/1\.1 413 /);
    socket.write(`worldGET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    expect((await collect(socket)).toString()).toMatch(/HTTP\/1\.1 200 .*next$/s);
    expect(endpoint.streams).toHaveLength(2);
  });
});

describe('a refusal that comes before the whole request', () => {
  /** An upstream that answers as soon as a request begins, and a client that has sent a part of one. */
  async function refusing(answer: (socket: Socket) => void) {
    const upstream = { received: '' };
    const server = createRawServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', () => answer(socket));
      socket.on('data', (bytes) => {
        upstream.received += bytes;
      });
    });
    const { host } = await edge.serveRaw(newHost(), server);
    const client = edge.connect();
    client.write(`POST / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\n`);
    return { client, upstream };
  }

  it.each([
    [413, true],
    [200, false],
  ])('with status %d, and ends in a reset rather than by a length, is complete: %s', async (status, isComplete) => {
    let reset: () => void = () => {};
    const { client } = await refusing((socket) => {
      socket.write(`HTTP/1.1 ${status} X\r\n\r\npage`);
      reset = () => socket.resetAndDestroy();
    });
    let response = '';
    client.on('data', (bytes) => {
      response += bytes;
    });
    await until(() => response.includes('page'), 'the body');
    reset();
    await once(client, 'close');
    expect(response.endsWith('0\r\n\r\n')).toBe(isComplete);
  });

  it('stops the upload when the upstream says that it closes the connection', async () => {
    let finish: () => void = () => {};
    const { client, upstream } = await refusing((socket) => {
      socket.write('HTTP/1.1 413 X\r\nConnection: close\r\nContent-Length: 2\r\n\r\n');
      finish = () => socket.write('no');
    });
    const [head] = (await once(client, 'data')) as [Buffer];
    expect(head.toString()).toMatch(/^HTTP\/1\.1 413 /);
    await new Promise<void>((resolve) => client.write('upload'.repeat(10_000), () => resolve()));
    finish();
    expect((await collect(client)).toString()).toBe('no');
    expect(upstream.received).not.toContain('upload');
  });
});

describe('the edge forwards', () => {
  it('interim responses unchanged, before the response', async () => {
    const { host } = await serve((_req, res) => {
      res.writeProcessing();
      res.writeEarlyHints({ link: ['</a.css>; rel=preload', '</b>'], 'x-trace': '1' });
      res.end('final');
    });
    const text = await edge.raw(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    expect(text).toMatch(
      /^HTTP\/1\.1 102 Processing\r\n\r\nHTTP\/1\.1 103 Early Hints\r\nLink: <\/a\.css>; rel=preload, <\/b>\r\nx-trace: 1\r\n\r\nHTTP\/1\.1 200 .*final$/s,
    );
    expect(await edge.raw(`GET / HTTP/1.0\r\nHost: ${host}\r\n\r\n`)).toMatch(/^HTTP\/1\.1 200 /);
  });

  it('request trailers, except those that are invalid as trailers', async () => {
    let trailers: string[] = [];
    const { host } = await serve(async (req, res) => {
      const body = await collect(req);
      trailers = req.rawTrailers;
      res.end(body);
    });
    const text = await edge.raw(
      `POST / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n` +
        'X-Sum: 42\r\nTrailer: X\r\nX-Forwarded-For: 203.0.113.1\r\nCookie: session=stolen\r\n\r\n',
    );
    expect(text).toMatch(/hello$/);
    expect(trailers).toEqual(['X-Sum', '42']);
  });

  it('content-length and host even if the Connection header names them', async () => {
    const { host } = await serve(async (req, res) => res.end(`${req.headers.host} ${await collect(req)}`));
    const text = await edge.raw(
      `POST / HTTP/1.1\r\nHost: ${host}\r\nConnection: close, content-length, host\r\nContent-Length: 5\r\n\r\nhello`,
    );
    expect(text).toMatch(new RegExp(`${host} hello$`));
  });
});

it('an unfinished head and unfinished trailers count for their stream, and no longer when they are complete', async () => {
  const pieces = [
    `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Much: ${'x'.repeat(10_000)}`,
    '\r\n\r\n2\r\nok\r\n0\r\n',
    `X-Sum: ${'x'.repeat(5000)}\r\n`,
    '\r\n',
  ];
  let socket: Socket | undefined;
  const server = createRawServer((accepted: Socket) => {
    socket = accepted.on('error', () => {});
    accepted.once('data', () => accepted.write(pieces[0] ?? ''));
  });
  const endpoint = await edge.serveRaw(newHost(), server);
  let kept = 0;
  const open = endpoint.openChannel.bind(endpoint);
  endpoint.openChannel = (client) =>
    Object.assign(open(client), {
      keep: (bytes: number) => {
        kept += bytes;
      },
    });
  const answer = ask(edge.httpPort, endpoint.host);
  await until(() => kept >= 10_000, 'the unfinished head');
  socket?.write(pieces[1] ?? '');
  await until(() => kept < 5000, 'the head');
  socket?.write(pieces[2] ?? '');
  await until(() => kept >= 5000, 'the trailers');
  socket?.write(pieces[3] ?? '');
  await answer;
  expect(kept).toBe(0);
});
