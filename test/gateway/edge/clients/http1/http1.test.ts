import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import { createServer as createRawServer, type Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { collect, TestEdge } from '../../../../support/edge.ts';

const HOST = 'Host: cam.localhost\r\n';
const get = (path: string, headers = '') => `GET ${path} HTTP/1.1\r\n${HOST}${headers}\r\n`;
const LAST = get('/last', 'Connection: close\r\n');

async function startEdge(httpLimits = {}): Promise<TestEdge> {
  const edge = await TestEdge.start({ httpLimits });
  onTestFinished(() => edge.close());
  return edge;
}

async function startWith(handler: RequestListener, httpLimits = {}): Promise<TestEdge> {
  const edge = await startEdge(httpLimits);
  await edge.serve('cam.localhost', handler);
  return edge;
}

/** An edge whose upstream rejects every request before reading it. */
async function startRefusing(): Promise<TestEdge> {
  const edge = await startEdge();
  const refusing = createRawServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => socket.write('HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno'));
  });
  await edge.serveRaw('cam.localhost', refusing);
  return edge;
}

function connected(edge: TestEdge): Socket {
  const socket = edge.connect();
  onTestFinished(() => void socket.destroy());
  return socket;
}

const echoPath: RequestListener = (req, res) => req.resume().on('end', () => res.end(`<${req.url}>`));
const paths = (text: string) => text.match(/<.*?>/g);
const statuses = (text: string) => text.match(/HTTP\/1\.1 \d+/g);

describe('pipelined requests', () => {
  it('are processed one at a time and answered in order', async () => {
    let atOnce = 0;
    let most = 0;
    const edge = await startWith(async (req, res) => {
      most = Math.max(most, ++atOnce);
      await nextTurn();
      atOnce -= 1;
      echoPath(req, res);
    });
    const all = Array.from({ length: 100 }, (_, at) => `/${at}`);
    const post = (path: string) => `POST ${path} HTTP/1.1\r\n${HOST}Content-Length: 3\r\n\r\nabc`;
    const text = await edge.raw(all.map((path, at) => (at % 3 === 0 ? post(path) : get(path))).join('') + LAST);
    expect(paths(text)).toEqual([...all, '/last'].map((path) => `<${path}>`));
    expect(most).toBe(1);
  });

  it('are not processed while the client does not read responses', async () => {
    let served = 0;
    const edge = await startWith((_req, res) => {
      served += 1;
      res.end(Buffer.alloc(1_048_576));
    });
    const socket = connected(edge).pause();
    socket.write(get('/').repeat(200));
    await expect.poll(() => served).toBeGreaterThan(0);
    for (let before = -1; before !== served; ) {
      before = served;
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
    expect(served).toBeLessThan(100);
  });

  it('are answered up to the first malformed one, which gets the last response', async () => {
    const edge = await startWith(echoPath);
    const text = await edge.raw(`${get('/1')}${get('/2')}nonsense\r\n\r\n${get('/3')}`);
    expect(statuses(text)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 200', 'HTTP/1.1 400']);
    expect(text).toContain('"error_code":"ERR_NGROK_3004"');
  });

  it('reach the upstream the same way however they are split', async () => {
    const edge = await startWith(async (req, res) => res.end(`<${req.url} ${await collect(req)}>`));
    const bytes = `\r\n${get('/1')}POST /2 HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nX-A: 1\r\n\r\n${LAST}`;
    const socket = connected(edge).setNoDelay();
    const answered = collect(socket);
    for (const byte of bytes) {
      socket.write(byte);
      await nextTurn();
    }
    expect(paths((await answered).toString())).toEqual(['</1 >', '</2 hello>', '</last >']);
  });
});

describe('a connection', () => {
  it('is kept alive and announces its timeout', async () => {
    const edge = await startWith(echoPath, { keepAliveTimeout: 1000 });
    const socket = connected(edge);
    socket.write(get('/'));
    const text = (await collect(socket)).toString();
    expect(text).toContain('Connection: keep-alive\r\nKeep-Alive: timeout=1\r\n');
    expect(socket.readableEnded).toBe(true);
  });

  it('is kept alive for HTTP/1.0 if the client asks for it and the length is known', async () => {
    const edge = await startWith((req, res) => {
      if (req.url === '/known') res.setHeader('content-length', 2);
      else res.flushHeaders();
      res.end('ok');
    });
    const old = (path: string) => `GET ${path} HTTP/1.0\r\n${HOST}Connection: keep-alive\r\n\r\n`;
    const text = await edge.raw(old('/known') + old('/unknown') + old('/known'));
    expect(statuses(text)).toHaveLength(2);
    expect(text).toMatch(/Connection: keep-alive.*Connection: close/s);
  });

  it('gets a 408 when its headers do not arrive in time', async () => {
    const edge = await startWith(echoPath, { headersTimeout: 300 });
    const text = await edge.raw(`GET / HTTP/1.1\r\n${HOST}`);
    expect(statuses(text)).toEqual(['HTTP/1.1 408']);
  });

  it('gets a 408 when its next headers do not arrive in time', async () => {
    const edge = await startWith(echoPath, { headersTimeout: 300 });
    expect(statuses(await edge.raw(`${get('/')}GET /next`))).toEqual(['HTTP/1.1 200', 'HTTP/1.1 408']);
  });

  it('is closed without a response when it sends nothing', async () => {
    const edge = await startWith(echoPath, { headersTimeout: 300 });
    expect(await edge.raw('')).toBe('');
  });

  it('gets a 400 at once when it uses another protocol', async () => {
    const edge = await startWith(echoPath);
    expect(statuses(await edge.raw('\x16\x03\x01\x02\0'))).toEqual(['HTTP/1.1 400']);
  });

  it('gets the whole response before it closes when its body has not been read', async () => {
    const edge = await startRefusing();
    const socket = connected(edge);
    const size = 8 * 1_048_576;
    socket.write(`POST / HTTP/1.1\r\n${HOST}Connection: close\r\nContent-Length: ${size}\r\n\r\n`);
    socket.write(Buffer.alloc(size));
    expect((await collect(socket)).toString()).toMatch(/^HTTP\/1\.1 413 .*no$/s);
  });

  it('serves the next request after the rest of an unread body', async () => {
    const edge = await startRefusing();
    const socket = connected(edge);
    socket.write(`POST / HTTP/1.1\r\n${HOST}Content-Length: 500000\r\n\r\n`);
    const [first] = (await once(socket, 'data')) as [Buffer];
    expect(first.toString()).toMatch(/^HTTP\/1\.1 413 /);
    socket.write(Buffer.alloc(500_000));
    socket.write(LAST);
    expect(statuses((await collect(socket)).toString())).toEqual(['HTTP/1.1 413']);
  });
});

describe('a method', () => {
  it('may be any token in upper case', async () => {
    const edge = await startEdge();
    const seen: string[] = [];
    const server = createRawServer((socket) => {
      socket.once('data', (bytes) => {
        seen.push(String(bytes).split(' ', 1)[0] ?? '');
        socket.end('HTTP/1.1 204 No Content\r\n\r\n');
      });
    });
    await edge.serveRaw('cam.localhost', server);
    for (const method of ['BREW', 'M-SEARCH']) {
      expect(statuses(await edge.raw(LAST.replace('GET', method)))).toEqual(['HTTP/1.1 204']);
    }
    expect(seen).toEqual(['BREW', 'M-SEARCH']);
  });

  it.each(['get', 'Head', 'CONNECT'])('may not be %s', async (method) => {
    const edge = await startWith(echoPath);
    expect(statuses(await edge.raw(LAST.replace('GET', method)))).toEqual(['HTTP/1.1 400']);
  });
});

describe('Expect', () => {
  it('with an unknown expectation is rejected with 417', async () => {
    const edge = await startWith(echoPath);
    const text = await edge.raw(get('/', 'Expect: the-unexpected\r\nConnection: close\r\n'));
    expect(statuses(text)).toEqual(['HTTP/1.1 417']);
  });

  it('is ignored in HTTP/1.0', async () => {
    const edge = await startWith(echoPath);
    const text = await edge.raw(`POST / HTTP/1.0\r\n${HOST}Expect: 100-continue\r\nContent-Length: 2\r\n\r\nab`);
    expect(statuses(text)).toEqual(['HTTP/1.1 200']);
  });
});

it('a declined upgrade closes the connection, as the next bytes may not be HTTP', async () => {
  const edge = await startEdge();
  await edge.serve('cam.localhost', createServer(echoPath));
  const text = await edge.raw(get('/1', 'Connection: Upgrade\r\nUpgrade: other\r\n') + get('/2'));
  expect(paths(text)).toEqual(['</1>']);
});
