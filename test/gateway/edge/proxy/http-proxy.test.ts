import { once } from 'node:events';
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import { createServer as createRawServer } from 'node:net';
import { Duplex } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { dialFailure } from '../../../../src/agent-protocol/dial-failure.ts';
import { StreamsExhausted } from '../../../../src/gateway/endpoints/online-endpoint.ts';
import { collect, type DirectEndpoint, TestEdge } from '../../../support/edge.ts';
import { ask } from '../../../support/http-request.ts';
import { answerOn, askHttp2, openHttp2 } from '../../../support/http2-client.ts';

let edge: TestEdge;
let names = 0;

beforeAll(async () => {
  edge = await TestEdge.start({ responseTimeout: 1000 });
});
afterAll(() => edge.close());

const newHost = () => `h${++names}.localhost`;

async function serve(handler: (req: IncomingMessage, res: ServerResponse) => void): Promise<DirectEndpoint> {
  return edge.serve(newHost(), handler);
}

/** An upstream that answers the first bytes of a connection with the given ones, and then may close it. */
async function serveBytes(answer: string, close: boolean): Promise<DirectEndpoint> {
  const server = createRawServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => (close ? socket.end(answer, 'latin1') : socket.write(answer, 'latin1')));
  });
  return edge.serveRaw(newHost(), server);
}

describe('requests', () => {
  it('reach the upstream unchanged, with X-Forwarded headers and without hop-by-hop headers', async () => {
    let seen: string[] = [];
    const { host } = await serve((req, res) => {
      seen = req.rawHeaders;
      res.end();
    });
    await edge.raw(
      `GET /a%20b?c=d HTTP/1.1\r\nHost: ${host}\r\nX-MiXed: 1\r\nx-dup: a\r\nX-Dup: b\r\nConnection: close, X-Hop\r\n` +
        'X-Hop: gone\r\nTE: trailers\r\nKeep-Alive: 3\r\nProxy-Connection: x\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n',
    );
    expect(pairs(seen)).toEqual([
      ['Host', host],
      ['X-MiXed', '1'],
      ['x-dup', 'a'],
      ['X-Dup', 'b'],
      ['X-Forwarded-For', '203.0.113.9, 127.0.0.1'],
      ['X-Forwarded-Proto', 'http'],
      ['X-Forwarded-Host', host],
      ['TE', 'trailers'],
      ['Connection', 'TE'],
    ]);
  });

  it('reach the upstream with one list of X-Forwarded-For, whatever its lines were', async () => {
    let seen: string[] = [];
    const { host } = await serve((req, res) => {
      seen = req.rawHeaders;
      res.end();
    });
    await ask(edge.httpPort, host, { headers: { 'X-Forwarded-For': ['203.0.113.9', '203.0.113.8, 10.0.0.1'] } });
    const lists = pairs(seen).filter(([name]) => name === 'X-Forwarded-For');
    expect(lists).toEqual([['X-Forwarded-For', '203.0.113.9, 203.0.113.8, 10.0.0.1, 127.0.0.1']]);
  });

  it('over HTTP/2 reach an HTTP/1.1 upstream with the usual names, and without a body that turns out to be empty', async () => {
    const seen: string[][] = [];
    const { host } = await edge.serve(
      newHost(),
      (req, res) => {
        seen.push(req.rawHeaders);
        res.end();
      },
      { protocol: 'https' },
    );
    const session = await openHttp2(edge, host);
    onTestFinished(() => session.destroy());
    const headers = {
      'www-authenticate': '1',
      etag: '1',
      'x-forwarded-for': '::1',
      'sec-websocket-key': '1',
      'x-my-own': '1',
    };
    await askHttp2(session, { ':method': 'POST', 'content-length': '2', ...headers }, 'hi');
    const stream = session.request({ ':path': '/', ':method': 'GET' }, { endStream: false });
    setImmediate(() => stream.end());
    await answerOn(stream);
    const [posted = [], got = []] = seen.map((raw) => pairs(raw).map(([name]) => name));
    expect(posted).toEqual([
      ...['Host', 'Content-Length', 'WWW-Authenticate', 'ETag', 'X-Forwarded-For', 'Sec-WebSocket-Key', 'X-My-Own'],
      ...['X-Forwarded-Proto', 'X-Forwarded-Host'],
    ]);
    expect(got).toEqual(['Host', 'X-Forwarded-For', 'X-Forwarded-Proto', 'X-Forwarded-Host']);
  });

  it.each([
    ['with a length', { 'content-length': '11' }],
    ['in chunks', { 'transfer-encoding': 'chunked' }],
  ])('carry a body sent %s, whatever the method', async (_how, headers) => {
    const { host } = await serve(async (req, res) => {
      res.end(
        `${req.method} ${req.headers['content-length'] ?? req.headers['transfer-encoding']} ${await collect(req)}`,
      );
    });
    for (const method of ['POST', 'PUT', 'DELETE', 'PROPFIND', 'GET']) {
      const answer = await ask(edge.httpPort, host, { method, headers, body: 'hello world' });
      expect(answer.body).toBe(`${method} ${Object.values(headers)[0]} hello world`);
    }
  });

  it('get 100 Continue only when the upstream sends it', async () => {
    const { host } = await serve(async (req, res) => res.end(`got ${await collect(req)}`));
    const socket = edge.connect();
    socket.write(
      `POST / HTTP/1.1\r\nHost: ${host}\r\nExpect: 100-continue\r\nContent-Length: 5\r\nConnection: close\r\n\r\n`,
    );
    const [first] = (await once(socket, 'data')) as [Buffer];
    expect(first.toString()).toBe('HTTP/1.1 100 Continue\r\n\r\n');
    socket.write('hello');
    expect((await collect(socket)).toString()).toMatch(/^HTTP\/1\.1 200 .*got hello/s);
  });

  it('are rejected before their body is sent if the upstream answers so', async () => {
    let expected: unknown;
    const server = createServer().on('checkContinue', (req, res) => {
      expected = req.headers.expect;
      res.writeHead(413).end('too much');
    });
    const { host } = await edge.serve(newHost(), server);
    const text = await edge.raw(
      `POST / HTTP/1.1\r\nHost: ${host}\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n`,
    );
    // The next bytes could be the body or another request, so the connection ends.
    expect(text).toMatch(/^HTTP\/1\.1 413 .*Connection: close\r\n.*too much/s);
    expect(expected).toBe('100-continue');
  });

  it('reuse streams', async () => {
    const endpoint = await serve((_req, res) => res.end('ok'));
    for (let at = 0; at < 20; at++) await ask(edge.httpPort, endpoint.host);
    expect(endpoint.streams.length).toBe(1);
    expect(endpoint.clients[0]?.address).toMatch(/^127\.0\.0\.1:\d+$/);
    expect(endpoint.clients[0]?.protocol).toBe('http');
  });

  it('are answered even if the upstream does not read the whole body', async () => {
    const { host } = await serve((_req, res) => res.writeHead(413).end('too much'));
    const answer = await ask(edge.httpPort, host, { body: Buffer.alloc(5_000_000) });
    expect([answer.status, answer.body]).toEqual([413, 'too much']);
  });
});

describe('responses', () => {
  it('keep names, order and duplicates of their headers, but not ngrok-error-code', async () => {
    const { host } = await serveBytes(
      'HTTP/1.1 299 Fine Enough\r\nX-MiXed: 1\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nNgrok-Error-Code: ERR_NGROK_1\r\n' +
        'Connection: keep-alive, X-Hop\r\nX-Hop: gone\r\nContent-Length: 2\r\n\r\nok',
      false,
    );
    const text = await edge.raw(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    expect(text.replace(/Date: .*\r\n/, '')).toBe(
      'HTTP/1.1 299 Fine Enough\r\nX-MiXed: 1\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nContent-Length: 2\r\n' +
        'Connection: close\r\n\r\nok',
    );
  });

  it.each([
    ['HEAD', 200, { 'content-length': '5' }],
    ['GET', 204, {}],
    ['GET', 304, { etag: '"x"' }],
  ])('to %s with %i have no body and keep the connection open', async (method, status, headers) => {
    const { host } = await serve((_req, res) => res.writeHead(status, headers).end());
    const one = `${method} / HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
    const text = await edge.raw(one + one.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'));
    expect(text.match(new RegExp(`HTTP/1.1 ${status}`, 'g'))).toHaveLength(2);
    if (status === 200) expect(text).toContain('content-length: 5');
    else expect(text.toLowerCase()).not.toMatch(/content-length|transfer-encoding/);
  });

  it('that are interim lose a length, which only final ones have', async () => {
    const interim = 'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 5\r\n\r\n';
    const { host } = await serveBytes(`${interim}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok`, false);
    const text = await edge.raw(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    expect(text).toMatch(/^HTTP\/1\.1 103 Early Hints\r\nLink: <\/a>\r\n\r\nHTTP\/1\.1 200 .*\r\n\r\nok$/s);
  });

  it('delimited by the end of the connection are complete', async () => {
    const { host } = await serveBytes('HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil the end', true);
    const answer = await ask(edge.httpPort, host);
    expect([answer.complete, answer.body]).toEqual([true, 'until the end']);
  });

  it('keep their trailers', async () => {
    const { host } = await serve((_req, res) => {
      res.writeHead(200, { trailer: 'X-Sum' });
      res.write('body');
      res.addTrailers({ 'X-Sum': '42' });
      res.end();
    });
    const answer = await ask(edge.httpPort, host);
    expect([answer.headers.trailer, answer.body, answer.trailers]).toEqual(['X-Sum', 'body', { 'x-sum': '42' }]);
  });

  it('follow their interim responses', async () => {
    const { host } = await serve((_req, res) => {
      res.writeEarlyHints({ link: '</a.css>; rel=preload' });
      setImmediate(() => res.end('final'));
    });
    expect((await ask(edge.httpPort, host)).body).toBe('final');
  });

  it('reach HTTP/1.0 clients without chunks', async () => {
    const { host } = await serve((_req, res) => {
      res.write('a');
      res.end('b');
    });
    expect(await edge.raw(`GET / HTTP/1.0\r\nHost: ${host}\r\n\r\n`)).toMatch(/\r\n\r\nab$/);
  });

  it('are streamed piece by piece', async () => {
    let events: ServerResponse | undefined;
    const { host } = await serve((_req, res) => {
      events = res;
      res.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
    });
    const req = request({ host: '127.0.0.1', port: edge.httpPort, headers: { host }, agent: false }).end();
    const [res] = (await once(req, 'response')) as [IncomingMessage];
    for (const event of ['one', 'two']) {
      events?.write(`data: ${event}\n\n`);
      const [chunk] = (await once(res, 'data')) as [Buffer];
      expect(chunk.toString()).toBe(`data: ${event}\n\n`);
    }
    const closed = once(events as ServerResponse, 'close');
    req.destroy();
    await closed;
  });
});

/** More than the kernel's buffers of all connections from an upstream to a client hold. */
const TOTAL = 160 * 1_048_576;

describe('back-pressure', () => {
  it.each([
    ['a length', { 'content-length': TOTAL }],
    ['chunks', {}],
  ])('pauses the upstream of a slow client without losing data of a response with %s', async (_how, headers) => {
    let written = 0;
    const { host } = await serve((_req, res) => {
      res.writeHead(200, headers);
      pump(res, TOTAL, (length) => (written += length));
    });
    const req = request({ host: '127.0.0.1', port: edge.httpPort, headers: { host }, agent: false }).end();
    const [res] = (await once(req, 'response')) as [IncomingMessage];
    await settled(() => written);
    expect(written).toBeLessThan(TOTAL);
    expect(await size(res)).toBe(TOTAL);
  });

  it('pauses the client of a slow upstream without losing data', async () => {
    let written = 0;
    let upload: IncomingMessage | undefined;
    let reply: ServerResponse | undefined;
    const { host } = await serve((req, res) => {
      upload = req;
      reply = res;
    });
    const req = request({ host: '127.0.0.1', port: edge.httpPort, headers: { host }, method: 'PUT', agent: false });
    const response = once(req, 'response');
    pump(req, TOTAL, (length) => (written += length));
    await settled(() => written);
    expect(written).toBeLessThan(TOTAL);
    const received = await size(upload as IncomingMessage);
    expect(received).toBe(TOTAL);
    reply?.end();
    const [res] = (await response) as [IncomingMessage];
    res.resume();
  });
});

describe('lost connections', () => {
  it('of the client end the upstream request', async () => {
    const aborted = signal<void>();
    const arrived = signal<void>();
    const { host } = await serve((_req, res) => {
      arrived.resolve();
      res.on('close', () => aborted.resolve());
    });
    const req = request({ host: '127.0.0.1', port: edge.httpPort, headers: { host }, agent: false });
    req.on('error', () => {}).end();
    await arrived.promise;
    req.destroy();
    await aborted.promise;
  });

  it('of the client abort its upload', async () => {
    const ended = signal<boolean>();
    const begun = signal<void>();
    const { host } = await serve((req) => {
      req.on('data', () => begun.resolve()).on('error', () => {});
      req.on('close', () => ended.resolve(req.complete));
    });
    const socket = edge.connect();
    socket.write(`POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 1000\r\n\r\nabc`);
    await begun.promise;
    socket.destroy();
    expect(await ended.promise).toBe(false);
  });

  it.each([
    ['a length', 'Content-Length: 100\r\n\r\nabc'],
    ['chunks', 'Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n'],
  ])('of the upstream within a response with %s leave it incomplete', async (_how, rest) => {
    const { host } = await serveBytes(`HTTP/1.1 200 OK\r\n${rest}`, true);
    const answer = await ask(edge.httpPort, host);
    expect([answer.body, answer.complete]).toEqual(['abc', false]);
  });

  it('before a response cause a 502', async () => {
    const { host } = await serveBytes('', true);
    const answer = await ask(edge.httpPort, host);
    expect([answer.status, answer.headers['ngrok-error-code']]).toEqual([502, 'ERR_NGROK_3007']);
  });

  describe('on a reused stream', () => {
    /** An upstream that answers the first request of a connection, and closes it on the second without a response. */
    async function serveOnce() {
      const seen = { requests: 0 };
      const server = createRawServer((socket) => {
        let requests = 0;
        socket.on('error', () => {});
        socket.on('data', () => {
          requests += 1;
          seen.requests += 1;
          if (requests === 1) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
          else socket.end();
        });
      });
      const { host } = await edge.serveRaw(newHost(), server);
      return { seen, send: (options = {}) => ask(edge.httpPort, host, options) };
    }

    it('repeat a GET', async () => {
      const { send } = await serveOnce();
      for (let at = 0; at < 3; at++) expect((await send()).body).toBe('ok');
    });

    it('never repeat a POST, but the next ones get new streams', async () => {
      const { seen, send } = await serveOnce();
      await send();
      expect((await send({ body: 'pay' })).status).toBe(502);
      expect(seen.requests).toBe(2);
      for (let at = 0; at < 3; at++) expect((await send({ body: 'pay' })).status).toBe(200);
    });
  });

  it.each([
    ['no HTTP at all', 'SSH-2.0-OpenSSH_9.2\r\n'],
    ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd'],
    ['an endless head', `HTTP/1.1 200 OK\r\nX-A: ${'a'.repeat(70_000)}\r\n\r\n`],
  ])('by %s cause a 502', async (_what, bytes) => {
    const { host } = await serveBytes(bytes, false);
    const answer = await ask(edge.httpPort, host);
    expect([answer.status, answer.headers['ngrok-error-code']]).toEqual([502, 'ERR_NGROK_3004']);
    expect(JSON.parse(answer.body).details.response).toMatch(/^it (?:is SSH|has two|s)|^its header is longer/);
  });
});

describe('failures', () => {
  it('of an upstream to answer cause a 504', async () => {
    const { host } = await serve(() => {});
    const answer = await ask(edge.httpPort, host);
    expect([answer.status, answer.headers['ngrok-error-code']]).toEqual([504, 'ERR_NGROK_3005']);
    expect(answer.body).toContain('within 1 s');
  });

  it('of a slow upstream to answer are those that its policy sets', async () => {
    const upstream = { type: 'gateway-upstream', config: { response_timeout: '1m' } };
    const policy = { on_http_request: [{ actions: [upstream] }] };
    const { host } = await edge.serve(newHost(), (_, res) => void setTimeout(() => res.end('report'), 1_500), {
      policy,
    });
    expect((await ask(edge.httpPort, host)).body).toBe('report');
  });

  it('that the SDK reports instead of the upstream become errors of the edge', async () => {
    const body = 'failed to dial backend: Connection refused (os error 111)';
    const { host } = await serveBytes(
      `HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
      true,
    );
    const answer = await ask(edge.httpPort, host);
    expect([answer.status, answer.headers['ngrok-error-code']]).toEqual([502, 'ERR_NGROK_8012']);
    expect(answer.body).not.toContain('os error');
    const head = await ask(edge.httpPort, host, { method: 'HEAD' });
    expect(head.headers['ngrok-error-code']).toBe('ERR_NGROK_8012');
  });

  it.each([
    ['speaks TLS 1.0 only', 'its upstream speaks TLS 1.0 only.'],
    ['is <b>not</b> there', 'its upstream is unreachable.'],
  ])('of which the agent says %j are told to clients, if the text is plain', async (summary, told) => {
    const { host } = await serveBytes(dialFailure(summary), true);
    const answer = await ask(edge.httpPort, host);
    expect([answer.status, answer.headers['ngrok-error-code']]).toEqual([502, 'ERR_NGROK_8012']);
    expect(answer.body).toContain(told);
  });

  it('that the upstream reports itself are forwarded', async () => {
    const { host } = await serve((_req, res) => res.writeHead(502, { 'content-type': 'text/plain' }).end('mine'));
    const answer = await ask(edge.httpPort, host);
    expect([answer.status, answer.headers['ngrok-error-code'], answer.body]).toEqual([502, undefined, 'mine']);
  });

  it('of the session to open a stream cause a 502', async () => {
    const endpoint = await serve((_req, res) => res.end());
    endpoint.open = () => {
      throw new Error('session is gone');
    };
    expect((await ask(edge.httpPort, endpoint.host)).status).toBe(502);
  });

  it('do not affect other connections', async () => {
    const good = await serve((_req, res) => setTimeout(() => res.end('fine'), 50));
    const bad = await serveBytes('nonsense\r\n', true);
    const answers = await Promise.all([ask(edge.httpPort, good.host), ask(edge.httpPort, bad.host)]);
    expect(answers.map(({ status }) => status)).toEqual([200, 502]);
  });
});

describe('an agent at its connection limit', () => {
  it('gets a request once a stream is free', async () => {
    const endpoint = await serve((_req, res) => res.end('at last'));
    const { open } = endpoint;
    let refusals = 3;
    endpoint.open = () => {
      if (refusals-- > 0) throw new StreamsExhausted();
      return open();
    };
    expect((await ask(edge.httpPort, endpoint.host)).body).toBe('at last');
  });

  it('gets a request on the stream of one that has ended', async () => {
    const held = signal<ServerResponse>();
    const endpoint = await serve((req, res) => (req.url === '/held' ? held.resolve(res) : res.end(req.url)));
    const { open } = endpoint;
    const isWaiting = signal<void>();
    endpoint.open = () => {
      if (endpoint.streams.length === 0) return open();
      isWaiting.resolve();
      throw new StreamsExhausted();
    };
    const first = ask(edge.httpPort, endpoint.host, { path: '/held' });
    const res = await held.promise;
    const others = ['/1', '/2'].map((path) => ask(edge.httpPort, endpoint.host, { path, method: 'POST', body: 'x' }));
    await isWaiting.promise;
    res.end('first');
    const answers = await Promise.all([first, ...others]);
    expect(answers.map(({ body }) => body)).toEqual(['first', '/1', '/2']);
    expect(endpoint.streams).toHaveLength(1);
  });

  it('causes a 503 with Retry-After after the timeout', async () => {
    const endpoint = await serve((_req, res) => res.end());
    endpoint.open = () => {
      throw new StreamsExhausted();
    };
    const answer = await ask(edge.httpPort, endpoint.host);
    expect([answer.status, answer.headers['retry-after']]).toEqual([503, '1']);
  });
});

describe('removing an endpoint', () => {
  it('aborts open responses, closes idle streams and answers 404 at once', async () => {
    const endpoint = await serve((req, res) => {
      if (req.url === '/slow') res.write('begun');
      else res.end('ok');
    });
    await ask(edge.httpPort, endpoint.host);
    const req = request({ host: '127.0.0.1', port: edge.httpPort, path: '/slow', headers: { host: endpoint.host } });
    const [res] = (await once(req.end(), 'response')) as [IncomingMessage];
    expect(res.statusCode).toBe(200);
    edge.remove(endpoint);
    await collect(res);
    expect(res.complete).toBe(false);
    expect(endpoint.streams.every((stream) => stream.destroyed)).toBe(true);
    expect((await ask(edge.httpPort, endpoint.host)).status).toBe(404);
  });

  it('answers waiting requests with 404', async () => {
    const arrived = signal<void>();
    const endpoint = await serve(() => arrived.resolve());
    const answer = ask(edge.httpPort, endpoint.host);
    await arrived.promise;
    edge.remove(endpoint);
    expect([(await answer).status, (await answer).headers['ngrok-error-code']]).toEqual([404, 'ERR_NGROK_3200']);
  });
});

it('works over a stream other than a socket', async () => {
  const endpoint = await edge.serve(newHost(), createServer());
  endpoint.open = () => {
    const stream = new Duplex({
      read() {},
      write(_chunk, _encoding, done) {
        stream.push('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone');
        done();
      },
    });
    return stream;
  };
  expect((await ask(edge.httpPort, endpoint.host)).body).toBe('done');
});

function pairs(flat: string[]): [string, string][] {
  return flat.flatMap((name, at) => (at % 2 === 0 ? [[name, flat[at + 1] as string] as [string, string]] : []));
}

/** A promise and how to resolve it. */
function signal<T>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => {};
  const promise = new Promise<T>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

/** Writes until back-pressure, up to `total` bytes. */
function pump(to: NodeJS.WritableStream, total: number, count: (length: number) => void): void {
  const piece = Buffer.alloc(65_536);
  let left = total;
  const go = (): void => {
    while (left > 0) {
      left -= piece.length;
      count(piece.length);
      if (!to.write(piece)) {
        to.once('drain', go);
        return;
      }
    }
    to.end();
  };
  go();
}

/** Waits until a number has stopped growing. */
async function settled(value: () => number): Promise<void> {
  for (let before = -1; before !== value(); ) {
    before = value();
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

/** The number of bytes until the end, none of which is kept. */
async function size(stream: AsyncIterable<Buffer>): Promise<number> {
  let bytes = 0;
  for await (const chunk of stream) bytes += chunk.length;
  return bytes;
}
