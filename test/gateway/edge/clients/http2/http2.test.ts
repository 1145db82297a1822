import { EventEmitter, once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type ClientHttp2Session, constants } from 'node:http2';
import { connect as connectTls } from 'node:tls';
import { gunzipSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Leaf } from '../../../../../src/gateway/certificates/local-ca/certificate-files.ts';
import { EDGE_TERMINATION } from '../../../../../src/gateway/endpoints/online-endpoint.ts';
import { collect, type DirectEndpoint, TestEdge } from '../../../../support/edge.ts';
import { answerOn, askHttp2, openHttp2 } from '../../../../support/http2-client.ts';
import { block, Flag, Frame, frame, RawHttp2 } from '../../../../support/raw-http2.ts';

let edge: TestEdge;
let names = 0;
const sessions: ClientHttp2Session[] = [];

beforeAll(async () => {
  edge = await TestEdge.start();
});
afterEach(() => {
  for (const session of sessions.splice(0)) session.destroy();
});
afterAll(() => edge.close());

const newHost = () => `h2-${++names}.localhost`;

function serve(
  handler: (req: IncomingMessage, res: ServerResponse) => void,
  policy?: object,
  host = newHost(),
): Promise<DirectEndpoint> {
  return edge.serve(host, handler, { protocol: 'https', ...(policy && { policy }) });
}

async function open(host: string): Promise<ClientHttp2Session> {
  const session = await openHttp2(edge, host);
  sessions.push(session);
  return session;
}

/** An HTTP/1.1 request; `servername` is used for the handshake only. */
async function getOverTls({ httpsPort, ca }: TestEdge, servername: string, headers: object): Promise<string> {
  const socket = connectTls({ host: '127.0.0.1', port: httpsPort, servername, ca: ca.caPem });
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.write(`GET / HTTP/1.1\r\n${lines.join('')}\r\n`);
  return (await collect(socket)).toString();
}

const respond = (action: object) => ({ on_http_request: [{ actions: [action] }] });

describe('HTTP/2 requests', () => {
  it('reach the upstream as HTTP/1.1, with cookies joined and the X-Forwarded headers', async () => {
    let seen: string[] = [];
    const { host } = await serve((req, res) => {
      seen = [`${req.method} ${req.url}`, ...req.rawHeaders];
      res.end('ok');
    });
    const session = await open(host);
    const answer = await askHttp2(session, {
      ':authority': host,
      ':path': '/a%20b?c=d',
      'x-a': '1',
      te: 'trailers',
      cookie: 'a=1; b=2',
    });
    expect([answer.headers[':status'], answer.body]).toEqual([200, 'ok']);
    expect(seen).toEqual(
      ['GET /a%20b?c=d', 'Host', host, 'X-A', '1', 'Cookie', 'a=1; b=2', 'X-Forwarded-For', '127.0.0.1'].concat([
        'X-Forwarded-Proto',
        'https',
        'X-Forwarded-Host',
        host,
        'TE',
        'trailers',
        'Connection',
        'TE',
      ]),
    );
  });

  it.each([
    ['without a length', {}, 'chunked'],
    ['with a length', { 'content-length': '11' }, '11'],
  ])('carry a body %s', async (_how, headers, framing) => {
    const { host } = await serve(async (req, res) => {
      const how = req.headers['content-length'] ?? req.headers['transfer-encoding'];
      res.end(`${req.method} ${how} ${await collect(req)}`);
    });
    const session = await open(host);
    for (const method of ['POST', 'PUT', 'DELETE', 'GET']) {
      const answer = await askHttp2(session, { ':method': method, ...headers }, 'hello world');
      expect(answer.body).toBe(`${method} ${framing} hello world`);
    }
  });

  it('forward trailers in both directions', async () => {
    let seen: NodeJS.Dict<string> = {};
    const { host } = await serve((req, res) => {
      req.resume().on('end', () => {
        seen = req.trailers;
        res.writeHead(200, { trailer: 'x-sum' });
        res.write('body');
        res.addTrailers({ 'x-sum': '42' });
        res.end();
      });
    });
    const stream = (await open(host)).request({ ':method': 'POST' }, { waitForTrailers: true });
    stream.on('wantTrailers', () => stream.sendTrailers({ 'x-check': 'abc' }));
    stream.end('data');
    const answer = await answerOn(stream);
    expect([answer.body, answer.trailers['x-sum'], seen['x-check']]).toEqual(['body', '42', 'abc']);
  });

  it('get 100 Continue only when the upstream sends it', async () => {
    const { host } = await serve(async (req, res) => res.end(`got ${await collect(req)}`));
    const stream = (await open(host)).request({ ':method': 'POST', expect: '100-continue' });
    await once(stream, 'continue');
    stream.end('hello');
    expect((await answerOn(stream)).body).toBe('got hello');
  });

  it('run concurrently on one connection without blocking each other', async () => {
    const waiting: ServerResponse[] = [];
    const { host } = await serve((req, res) => {
      if (req.url === '/slow') waiting.push(res);
      else res.end(req.url);
    });
    const session = await open(host);
    const slow = askHttp2(session, { ':path': '/slow' });
    const quick = Array.from({ length: 60 }, (_, at) => askHttp2(session, { ':path': `/${at}` }));
    expect((await Promise.all(quick)).map(({ body }) => body)).toEqual(quick.map((_, at) => `/${at}`));
    for (const res of waiting) res.end('at last');
    expect((await slow).body).toBe('at last');
  });

  it('end at the upstream when the client resets them', async () => {
    let gone: Promise<unknown> = Promise.resolve();
    const { host } = await serve((_req, res) => {
      gone = once(res, 'close');
      res.write('first');
    });
    const session = await open(host);
    const stream = session.request({ ':path': '/' });
    await once(stream, 'data');
    stream.close(8);
    await gone;
    expect(session.destroyed).toBe(false);
  });

  it('end at the upstream when the client disconnects', async () => {
    const upstream = new EventEmitter();
    const { host } = await serve((req) => {
      req.socket.once('close', () => upstream.emit('gone'));
      upstream.emit('asked');
    });
    const raw = await RawHttp2.open(edge, host);
    const fields = { ':method': 'GET', ':scheme': 'https', ':authority': host, ':path': '/' };
    const head = frame(Frame.headers, Flag.endHeaders | Flag.endStream, 1, block(Object.entries(fields)));
    const asked = once(upstream, 'asked');
    raw.send(head);
    await asked;
    const gone = once(upstream, 'gone');
    raw.socket.end();
    await gone;
    await raw.closed();
  });

  it('are answered even if the upstream does not read the whole body', async () => {
    const { host } = await serve((_req, res) => res.writeHead(413).end('too much'));
    const session = await open(host);
    const stream = session.request({ ':method': 'POST' });
    stream.write(Buffer.alloc(1_000_000));
    const answer = await answerOn(stream);
    expect([answer.headers[':status'], answer.body]).toEqual([413, 'too much']);
    if (!stream.destroyed) await once(stream, 'close');
    expect(stream.rstCode).toBe(0);
  });
});

describe('HTTP/2 responses', () => {
  it('keep repeated headers separate or join them, without connection headers', async () => {
    const { host } = await serve((_req, res) => {
      res
        .writeHead(299, ['Set-Cookie', 'a=1', 'set-cookie', 'b=2', 'Vary', 'a', 'vary', 'b', 'Connection', 'close'])
        .end();
    });
    const { headers } = await askHttp2(await open(host), {});
    expect(headers[':status']).toBe(299);
    expect(headers['set-cookie']).toEqual(['a=1', 'b=2']);
    expect(headers.vary).toBe('a, b');
    expect(headers.connection).toBeUndefined();
  });

  it('are sent for any repeated headers', async () => {
    const known = Object.values(constants).filter((name) => /^[a-z][a-z-]+$/.test(String(name)));
    const names = known.filter(
      (name) => !/^(?:connection|content-length|keep-alive|transfer-encoding)$/.test(`${name}`),
    );
    const { host } = await serve((_req, res) => {
      res.sendDate = false;
      res
        .writeHead(
          200,
          names.flatMap((name) => [`${name}`, '1', `${name}`, '2']),
        )
        .end();
    });
    const { headers } = await askHttp2(await open(host), {});
    expect([headers[':status'], headers.location, headers.link]).toEqual([200, '1, 2', '1, 2']);
  });

  it('keep challenges separate, as they contain commas', async () => {
    const challenges = ['WWW-Authenticate', 'Basic realm="a"', 'WWW-Authenticate', 'Digest realm="b", nonce="c"'];
    const { host } = await serve((_req, res) => res.writeHead(401, challenges).end());
    const stream = (await open(host)).request({});
    const [, , raw] = (await once(stream, 'response')) as [object, number, string[]];
    const values = raw.filter((_, at) => at % 2 === 1 && raw[at - 1] === 'www-authenticate');
    expect(values).toEqual(['Basic realm="a"', 'Digest realm="b", nonce="c"']);
  });

  it.each([
    ['HEAD', 200, { 'content-length': '5' }],
    ['GET', 204, {}],
    ['GET', 304, { etag: '"x"' }],
    ['GET', 304, { 'content-length': '5' }],
    ['GET', 205, { 'content-length': '0' }],
    ['GET', 205, {}],
  ])('to %s with %i and %j have no body, and only to HEAD a length', async (method, status, headers) => {
    const { host } = await serve((_req, res) => res.writeHead(status, headers).end());
    const answer = await askHttp2(await open(host), { ':method': method });
    expect([answer.headers[':status'], answer.body]).toEqual([status, '']);
    // Go reports an unexpected end for a length without a body.
    expect(answer.headers['content-length']).toBe(method === 'HEAD' ? '5' : undefined);
  });

  it('with 205 lose a body, which Node could not send', async () => {
    const { host } = await serve((_req, res) => res.writeHead(205, { 'content-length': '5' }).end('hello'));
    const answer = await askHttp2(await open(host), {});
    expect([answer.headers[':status'], answer.body]).toEqual([205, '']);
  });

  it('that are aborted reset the stream, and the connection stays open', async () => {
    const { host } = await serve((req, res) => {
      if (req.url === '/whole') res.end('whole');
      else res.write('half', () => res.destroy());
    });
    const session = await open(host);
    const stream = session.request({ ':path': '/' });
    const failed = once(stream, 'error');
    stream.resume();
    await failed;
    expect(stream.rstCode).toBe(2);
    expect((await askHttp2(session, { ':path': '/whole' })).body).toBe('whole');
  });

  it('arrive complete and apply back-pressure when the client reads slowly', async () => {
    const size = 20_000_000;
    let upstream: ServerResponse | undefined;
    const { host } = await serve((_req, res) => {
      upstream = res;
      res.end(Buffer.alloc(size, 'x'));
    });
    const session = await open(host);
    const stream = session.request({ ':path': '/' });
    await once(stream, 'response');
    // The client reads nothing until the sockets in between are full.
    let before = -1;
    while (upstream && before !== upstream.socket?.bytesWritten) {
      before = upstream.socket?.bytesWritten ?? 0;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    expect(upstream?.writableFinished).toBe(false);
    expect((await collect(stream)).length).toBe(size);
  });

  it('stream events as they happen', async () => {
    let send: (event: string) => void = () => {};
    const { host } = await serve((_req, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' });
      res.flushHeaders();
      send = (event) => res.write(`data: ${event}\n\n`);
    });
    const stream = (await open(host)).request({ ':path': '/' });
    const [headers] = await once(stream, 'response');
    expect(headers['content-type']).toBe('text/event-stream');
    for (const event of ['one', 'two']) {
      const next = once(stream, 'data');
      send(event);
      expect(String((await next)[0])).toBe(`data: ${event}\n\n`);
    }
  });

  it('forward early hints unchanged', async () => {
    const { host } = await serve((_req, res) => {
      res.writeEarlyHints({ link: '</a.css>; rel=preload', 'x-trace': '1' });
      res.end('page');
    });
    const stream = (await open(host)).request({ ':path': '/' });
    const hinted = once(stream, 'headers');
    const answer = await answerOn(stream);
    const [hints] = await hinted;
    expect([hints.link, hints['x-trace'], answer.body]).toEqual(['</a.css>; rel=preload', '1', 'page']);
  });
});

describe('policies over HTTP/2', () => {
  it('can read the version, answer, reject and compress', async () => {
    const custom = (body: string) => respond({ type: 'custom-response', config: { status_code: 203, body } });
    const one = await serve((_req, res) => res.end('upstream'), custom(`\${req.version} \${conn.tls.negotiated_alpn}`));
    const answered = await askHttp2(await open(one.host), { ':method': 'POST' }, 'body');
    expect([answered.headers[':status'], answered.body]).toEqual([203, 'HTTP/2.0 h2']);
    const two = await serve((_req, res) => res.end('upstream'), respond({ type: 'deny' }));
    const refused = await askHttp2(await open(two.host), {});
    expect([refused.headers[':status'], two.streams.length]).toEqual([403, 0]);
    const compress = { on_http_response: [{ actions: [{ type: 'compress-response' }] }] };
    const text = 'long enough to be compressed '.repeat(1000);
    const three = await serve((_req, res) => res.setHeader('content-type', 'text/plain').end(text), compress);
    const stream = (await open(three.host)).request({ ':path': '/', 'accept-encoding': 'gzip' });
    const [headers] = await once(stream, 'response');
    expect(headers['content-encoding']).toBe('gzip');
    expect(gunzipSync(await collect(stream)).toString()).toBe(text);
  });

  it('close the connection with close-connection', async () => {
    const { host } = await serve((_req, res) => res.end(), respond({ type: 'close-connection' }));
    const session = await open(host);
    const closed = once(session, 'close');
    session.request({ ':path': '/' }).on('error', () => {});
    await closed;
  });
});

describe('an HTTP/2 connection', () => {
  it('is negotiated only for hosts with an https endpoint', async () => {
    const { host } = await serve((_req, res) => res.end());
    const protocolOf = async (servername: string, ALPNProtocols: string[]) => {
      const socket = connectTls({
        host: '127.0.0.1',
        port: edge.httpsPort,
        servername,
        ALPNProtocols,
        rejectUnauthorized: false,
      });
      await once(socket, 'secureConnect');
      socket.destroy();
      return socket.alpnProtocol;
    };
    expect(await protocolOf(host, ['h2', 'http/1.1'])).toBe('h2');
    expect(await protocolOf(host, ['http/1.1'])).toBe('http/1.1');
    expect(await protocolOf(host, ['http/1.0'])).toBe('http/1.0');
    expect(await protocolOf('unknown.localhost', ['h2', 'http/1.1'])).toBe('http/1.1');
  });

  it('answers 421 for a host that its certificate does not cover', async () => {
    const one = await serve((_req, res) => res.end('one'));
    const two = await serve((_req, res) => res.end('two'));
    const session = await open(one.host);
    const answer = await askHttp2(session, { ':authority': two.host });
    expect(answer.headers[':status']).toBe(421);
    expect(two.streams).toEqual([]);
    expect((await askHttp2(session, { ':authority': `${one.host}:443` })).body).toBe('one');
  });

  it('serves other hosts that its certificate covers, unless they demand more of handshakes', async () => {
    const host = (name: string) => `${name}.site.localhost`;
    let wildcard: Leaf | null = null;
    const site = await TestEdge.start({ domainCertificates: { pairFor: () => wildcard } });
    wildcard = await site.ca.issue(['*.site.localhost']);
    const protocol = 'https';
    for (const name of ['one', 'two']) await site.serve(host(name), (_req, res) => res.end(name), { protocol });
    const demanding = await site.serve(host('three'), (_req, res) => res.end('three'), { protocol });
    const clientAuthorities = [site.ca.caPem];
    Object.assign(demanding, { tls: { ...EDGE_TERMINATION, clientAuthorities } });
    const policy = { on_tcp_connect: [{ actions: [{ type: 'log', config: { metadata: { a: 'b' } } }] }] };
    await site.serve(host('four'), (_req, res) => res.end('four'), { protocol, policy });
    const session = await openHttp2(site, host('one'));
    const asked = ['one', 'two', 'three', 'four'].map((name) => askHttp2(session, { ':authority': host(name) }));
    const answers = await Promise.all(asked);
    session.destroy();
    expect(answers.map(({ headers }) => headers[':status'])).toEqual([200, 200, 421, 421]);
    expect(answers[1]?.body).toBe('two');
    const old = { host: host('three'), connection: 'close' };
    const answer = await getOverTls(site, host('one'), old);
    await site.close();
    expect(answer).toMatch(/^HTTP\/1\.1 421 /);
  });

  it('is not negotiated when the limit is 0', async () => {
    const without = await TestEdge.start({ httpLimits: { streams: 0 } });
    const { host } = await without.serve(newHost(), (_req, res) => res.end('one'), { protocol: 'https' });
    await expect(openHttp2(without, host)).rejects.toThrow('speaks http/1.1');
    expect(await getOverTls(without, host, { host, connection: 'close' })).toMatch(/^HTTP\/1\.1 200 /);
    await without.close();
  });

  it('answers 404 after the endpoint has gone offline, and ends its open requests', async () => {
    const endpoint = await serve((_req, res) => res.write('half'));
    const session = await open(endpoint.host);
    const stream = session.request({ ':path': '/' });
    const failed = once(stream, 'error');
    await once(stream, 'data');
    edge.remove(endpoint);
    await failed;
    const answer = await askHttp2(session, {});
    expect([answer.headers[':status'], answer.headers['ngrok-error-code']]).toEqual([404, 'ERR_NGROK_3200']);
  });

  it('answers 502 when the upstream closes the connection', async () => {
    const { host } = await serve((req) => req.socket.destroy());
    const answer = await askHttp2(await open(host), {});
    expect(answer.headers[':status']).toBe(502);
    expect(JSON.parse(answer.body)).toMatchObject({ error_code: 'ERR_NGROK_3007' });
  });

  it('answers 500 for a status that HTTP/2 cannot carry here, and stays open', async () => {
    const { host } = await serve((req, res) => {
      if (req.url === '/') res.writeHead(999, 'Request denied');
      res.end('ok');
    });
    const session = await open(host);
    const answer = await askHttp2(session, {});
    expect([answer.headers[':status'], answer.body]).toEqual([500, 'ok']);
    expect((await askHttp2(session, { ':path': '/well' })).body).toBe('ok');
  });
});
