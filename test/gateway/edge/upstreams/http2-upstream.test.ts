import { once } from 'node:events';
import { createServer as createHttp1Server } from 'node:http';
import { type ClientHttp2Session, createServer, type IncomingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import { createServer as createRawServer } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { dialFailure } from '../../../../src/agent-protocol/dial-failure.ts';
import { StreamsExhausted } from '../../../../src/gateway/endpoints/online-endpoint.ts';
import { collect, type DirectEndpoint, TestEdge } from '../../../support/edge.ts';
import { ask } from '../../../support/http-request.ts';
import { answerOn, askHttp2, openHttp2 } from '../../../support/http2-client.ts';
import { block, Code, type Fields, Flag, Frame, frame, uint32 } from '../../../support/raw-http2.ts';

type Handler = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, flags: number, raw: string[]) => void;

let edge: TestEdge;
let names = 0;
const sessions: ClientHttp2Session[] = [];

beforeAll(async () => {
  edge = await TestEdge.start({ responseTimeout: 1000 });
});
afterEach(() => {
  for (const session of sessions.splice(0)) session.destroy();
});
afterAll(() => edge.close());

/** An endpoint whose upstream supports only HTTP/2, without TLS. */
async function serve(handler: Handler, protocol: 'http' | 'https' = 'https'): Promise<DirectEndpoint> {
  const server = createServer();
  server.on('stream', handler).on('sessionError', () => {});
  const endpoint = await edge.serveRaw(`up-${++names}.localhost`, server, { protocol });
  endpoint.http2Upstream = true;
  return endpoint;
}

async function openClient(host: string): Promise<ClientHttp2Session> {
  const session = await openHttp2(edge, host);
  sessions.push(session);
  return session;
}

describe('an HTTP/2 upstream', () => {
  it('receives requests unchanged, with the X-Forwarded headers', async () => {
    let seen: IncomingHttpHeaders = {};
    const { host } = await serve(async (stream, headers) => {
      seen = headers;
      stream.respond({ ':status': 200, 'x-a': ['1', '2'] });
      stream.end(await collect(stream));
    });
    const session = await openClient(host);
    const headers = { ':method': 'POST', ':authority': host, ':path': '/a?b', te: 'trailers', cookie: 'a=1; b=2' };
    const answer = await askHttp2(session, headers, 'hello');
    expect([answer.headers[':status'], answer.headers['x-a'], answer.body]).toEqual([200, '1, 2', 'hello']);
    expect(seen).toMatchObject({ ...headers, ':scheme': 'http', 'x-forwarded-for': '127.0.0.1' });
    expect(seen).not.toHaveProperty('transfer-encoding');
    expect(seen).not.toHaveProperty('host');
  });

  it('receives and sends repeated headers separately', async () => {
    const pairs = (raw: string[]) => raw.flatMap((name, at) => (at % 2 === 0 && name === 'x-bin' ? [raw[at + 1]] : []));
    let seen: string[] = [];
    const { host } = await serve((stream, _headers, _flags, raw) => {
      seen = raw;
      stream.respond({ ':status': 200, 'x-bin': ['AA', 'AQ'] }, { endStream: true });
    });
    const stream = (await openClient(host)).request({ ':path': '/', 'x-bin': ['AA', 'AQ'] });
    const [, , raw] = (await once(stream, 'response')) as [object, number, string[]];
    expect([pairs(seen), pairs(raw)]).toEqual([
      ['AA', 'AQ'],
      ['AA', 'AQ'],
    ]);
  });

  it('answers Expect: 100-continue with 100 or a final response', async () => {
    const { host } = await serve(async (stream, { ':path': path, expect: expected }) => {
      if (path === '/refused') return stream.respond({ ':status': 413 }, { endStream: true });
      stream.additionalHeaders({ ':status': 100 });
      const body = await collect(stream);
      stream.respond({ ':status': 200 });
      stream.end(`${expected} ${body}`);
    });
    const session = await openClient(host);
    const ask = (path: string) => session.request({ ':method': 'POST', ':path': path, expect: '100-continue' });
    const granted = ask('/');
    await once(granted, 'continue');
    granted.end('hello');
    expect((await answerOn(granted)).body).toBe('100-continue hello');
    expect((await answerOn(ask('/refused'))).headers[':status']).toBe(413);
  });

  it('serves HTTP/1.1 clients, with bodies and trailers', async () => {
    const { host } = await serve(async (stream) => {
      const body = await collect(stream);
      stream.respond({ ':status': 201 }, { waitForTrailers: true });
      stream.on('wantTrailers', () => stream.sendTrailers({ 'x-sum': String(body.length) })).end(body);
    }, 'http');
    for (const headers of [{ 'transfer-encoding': 'chunked' }, { 'content-length': '5' }]) {
      const answer = await ask(edge.httpPort, host, { headers, body: 'hello', method: 'POST' });
      expect([answer.status, answer.body, answer.trailers['x-sum']]).toEqual([201, 'hello', '5']);
    }
  });

  it('receives the requests of all clients on one connection', async () => {
    const endpoint = await serve((stream, headers) => {
      stream.respond({ ':status': 200 });
      stream.end(headers[':path']);
    });
    const clients = await Promise.all([openClient(endpoint.host), openClient(endpoint.host)]);
    const asked = Array.from({ length: 80 }, (_, at) => at);
    const answers = await Promise.all(
      asked.map((at) => askHttp2(clients[at % 2] as ClientHttp2Session, { ':path': `/${at}` })),
    );
    expect(answers.map(({ body }) => body)).toEqual(asked.map((at) => `/${at}`));
    expect(endpoint.streams).toHaveLength(1);
  });

  it('receives no more concurrent requests per connection than it allows', async () => {
    const server = createServer({ settings: { maxConcurrentStreams: 2 } });
    const open = new Map<unknown, number>();
    let most = 0;
    server.on('stream', (stream) => {
      const count = (open.get(stream.session) ?? 0) + 1;
      most = Math.max(most, count);
      open.set(stream.session, count);
      setImmediate(() => {
        open.set(stream.session, (open.get(stream.session) ?? 0) - 1);
        stream.respond({ ':status': 204 }, { endStream: true });
      });
    });
    const endpoint = await edge.serveRaw(`up-${++names}.localhost`, server, { protocol: 'https' });
    endpoint.http2Upstream = true;
    const session = await openClient(endpoint.host);
    await askHttp2(session, {});
    const answers = await Promise.all(Array.from({ length: 20 }, () => askHttp2(session, {})));
    expect(answers.map(({ headers }) => headers[':status'])).toEqual(answers.map(() => 204));
    expect(most).toBe(2);
    expect(endpoint.streams.length).toBeGreaterThan(1);
  });

  it('streams both ways at the same time, with trailers', async () => {
    const { host } = await serve((stream) => {
      stream.respond({ ':status': 200 }, { waitForTrailers: true });
      stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' })).pipe(stream);
    });
    const stream = (await openClient(host)).request({ ':method': 'POST', te: 'trailers' });
    const trailers = once(stream, 'trailers');
    for (const message of ['one', 'two', 'three']) {
      const echoed = once(stream, 'data');
      stream.write(message);
      expect(String((await echoed)[0])).toBe(message);
    }
    stream.resume().end();
    expect((await trailers)[0]['grpc-status']).toBe('0');
  });

  it('can send a trailers-only response in one frame', async () => {
    const { host } = await serve((stream) =>
      stream.respond({ ':status': 200, 'grpc-status': '5' }, { endStream: true }),
    );
    const stream = (await openClient(host)).request({ ':method': 'POST', te: 'trailers' });
    stream.write('message');
    const [headers, flags] = await once(stream, 'response');
    expect([headers['grpc-status'], flags & 1]).toEqual(['5', 1]);
  });

  it('sees a reset when one client aborts, and the other requests continue', async () => {
    const closed: Promise<number>[] = [];
    const { host } = await serve((stream) => {
      closed.push(
        once(
          stream.on('error', () => {}),
          'close',
        ).then(() => stream.rstCode),
      );
      stream.respond({ ':status': 200 });
      stream.write('first');
      stream.pipe(stream);
    });
    const session = await openClient(host);
    const one = session.request({ ':method': 'POST' });
    const two = session.request({ ':method': 'POST' });
    await Promise.all([once(one, 'data'), once(two, 'data')]);
    one.close(8);
    expect(await Promise.race(closed)).toBe(8);
    const echoed = once(two, 'data');
    two.write('still here');
    expect(String((await echoed)[0])).toBe('still here');
  });

  it.each([
    ['many', 101, 5],
    ['long', 9, 8_000],
  ])('that sends endless interim responses causes a 502: %s', async (_, count, length) => {
    const { host } = await serve((stream) => {
      const link = 'a'.repeat(length);
      for (let sent = 0; sent < count; sent++) stream.additionalHeaders({ ':status': 103, link });
      stream.on('error', () => {}).respond({ ':status': 200 }, { endStream: true });
    });
    expect((await askHttp2(await openClient(host), {})).headers[':status']).toBe(502);
  });

  it('that resets a stream aborts the response, or causes a 502', async () => {
    const { host } = await serve((stream, headers) => {
      stream.on('error', () => {});
      if (headers[':path'] === '/early') return stream.close(2);
      // Without `waitForTrailers`, Node would end the stream in an orderly way before it resets it.
      stream.respond({ ':status': 200 }, { waitForTrailers: true });
      stream.write('half', () => stream.close(11));
    });
    const session = await openClient(host);
    expect((await askHttp2(session, { ':path': '/early' })).headers[':status']).toBe(502);
    const stream = session.request({ ':path': '/late' });
    const failed = once(stream, 'error');
    stream.resume();
    await failed;
    // The reset code is the upstream's: gRPC clients derive the status of a call from it.
    expect(stream.rstCode).toBe(11);
  });

  it('that does not answer in time causes a 504', async () => {
    const { host } = await serve((stream) => stream.on('error', () => {}));
    expect((await askHttp2(await openClient(host), {})).headers[':status']).toBe(504);
  });

  it('applies back-pressure to a fast client without losing data', async () => {
    const body = Buffer.alloc(4_000_000, 'x');
    let release: (stream: ServerHttp2Stream) => void = () => {};
    const held = new Promise<ServerHttp2Stream>((resolve) => {
      release = resolve;
    });
    const { host } = await serve((stream) => release(stream));
    const stream = (await openClient(host)).request({ ':method': 'POST' });
    const answer = answerOn(stream);
    const written = new Promise((resolve) => stream.write(body, resolve));
    const upstream = await held;
    expect(await Promise.race([written.then(() => 'all'), new Promise((resolve) => setTimeout(resolve, 200))])).toBe(
      undefined,
    );
    stream.end();
    upstream.respond({ ':status': 200 });
    upstream.end(String((await collect(upstream)).equals(body)));
    expect((await answer).body).toBe('true');
  });

  it('gets requests once an agent at its connection limit has a free stream', async () => {
    const endpoint = await serve((stream) => {
      stream.respond({ ':status': 200 });
      stream.end('at last');
    });
    const opening = endpoint.open;
    let refused = 0;
    endpoint.open = () => {
      if (++refused > 3) return opening();
      throw new StreamsExhausted();
    };
    expect((await askHttp2(await openClient(endpoint.host), {})).body).toBe('at last');
  });

  it('is disconnected when its endpoint goes offline', async () => {
    const endpoint = await serve((stream) => {
      stream.on('error', () => {}).respond({ ':status': 200 });
      stream.write('half');
    });
    const session = await openClient(endpoint.host);
    const stream = session.request({ ':path': '/' });
    const failed = once(stream, 'error');
    await once(stream, 'data');
    edge.remove(endpoint);
    await failed;
    expect((await askHttp2(session, {})).headers[':status']).toBe(404);
    const [carrier] = endpoint.streams;
    if (carrier && !carrier.destroyed) await once(carrier, 'close');
  });

  it('receives no upgrade requests', async () => {
    const { host } = await serve((stream, headers) => {
      stream.respond({ ':status': 200 });
      stream.end(`upgrade ${headers.upgrade}`);
    }, 'http');
    const text = await edge.raw(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`);
    expect(text).toMatch(/^HTTP\/1\.1 200 .*upgrade undefined/s);
  });
});

/** An endpoint whose HTTP/2 upstream answers the first request with these frames; returns its host. */
async function serveFrames(...answer: Buffer[]): Promise<string> {
  const server = createRawServer((socket) => {
    socket.on('error', () => {}).write(frame(Frame.settings, 0, 0));
    let seen = Buffer.alloc(0);
    socket.on('data', (chunk: Buffer) => {
      seen = Buffer.concat([seen, chunk]);
      if (isAsked(seen)) socket.write(Buffer.concat(answer));
    });
  });
  const endpoint = await edge.serveRaw(`up-${++names}.localhost`, server, { protocol: 'http' });
  endpoint.http2Upstream = true;
  return endpoint.host;
}

/** Whether the first request is among what a client has sent. */
function isAsked(bytes: Buffer): boolean {
  const flags = [0, Flag.priority].map((more) => Flag.endStream | Flag.endHeaders | more);
  return flags.some((flag) => bytes.includes(Buffer.from([Frame.headers, flag, 0, 0, 0, 1])));
}

describe('an upstream without HTTP/2', () => {
  it('causes a 502 with the reason', async () => {
    const endpoint = await edge.serveRaw(`up-${++names}.localhost`, createHttp1Server(), { protocol: 'https' });
    endpoint.http2Upstream = true;
    const answer = await askHttp2(await openClient(endpoint.host), {});
    expect([answer.headers[':status'], JSON.parse(answer.body).error_code]).toEqual([502, 'ERR_NGROK_3004']);
  });

  it('causes a 502 when it is unreachable', async () => {
    const server = createRawServer((socket) => {
      socket.end(dialFailure('speaks TLS 1.0 only'));
    });
    const endpoint = await edge.serveRaw(`up-${++names}.localhost`, server, { protocol: 'https' });
    endpoint.http2Upstream = true;
    const answer = await askHttp2(await openClient(endpoint.host), {});
    const { error_code, msg } = JSON.parse(answer.body);
    expect([answer.headers[':status'], error_code]).toEqual([502, 'ERR_NGROK_8012']);
    expect(msg).toContain('its upstream speaks TLS 1.0 only.');
  });

  it('causes a 502 when it closes the connection', async () => {
    const server = createRawServer((socket) => socket.destroy());
    const endpoint = await edge.serveRaw(`up-${++names}.localhost`, server, { protocol: 'https' });
    endpoint.http2Upstream = true;
    expect((await askHttp2(await openClient(endpoint.host), {})).headers[':status']).toBe(502);
  });

  it('leaves the response incomplete when it ends in the middle of a body', async () => {
    const head: Fields = [
      [':status', '200'],
      ['content-length', '10'],
    ];
    const host = await serveFrames(
      frame(Frame.headers, Flag.endHeaders, 1, block(head)),
      frame(Frame.data, 0, 1, 'abc'),
      frame(Frame.reset, 0, 1, uint32(Code.none)),
    );
    const request = `GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
    const answer = await edge.raw(request + request);
    expect(answer.split('HTTP/1.1 ')).toHaveLength(2);
    expect(answer).toMatch(/\r\n\r\nabc$/);
  });

  it.each(
    ['000', '099', '101', '600', '999'].flatMap((status) => [
      { status, flags: Flag.endHeaders },
      { status, flags: Flag.endHeaders | Flag.endStream },
    ]),
  )('causes a 502 with the status $status and flags $flags', async ({ status, flags }) => {
    const host = await serveFrames(frame(Frame.headers, flags, 1, block([[':status', status]])));
    const answer = await edge.raw(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    expect(answer).toMatch(/^HTTP\/1\.1 502 /);
  });

  it('may send a content-length in response to HEAD', async () => {
    const { host } = await serve((stream) => stream.respond({ ':status': 200, 'content-length': '10' }));
    const session = await openClient(host);
    const answer = await askHttp2(session, { ':method': 'HEAD' });
    expect([answer.headers['content-length'], answer.body]).toEqual(['10', '']);
  });
});
