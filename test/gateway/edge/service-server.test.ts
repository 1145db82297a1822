import { once } from 'node:events';
import type { RequestListener } from 'node:http';
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls';
import { describe, expect, it, onTestFinished } from 'vitest';
import { collect, TestEdge } from '../../support/edge.ts';
import { until } from '../../support/until.ts';

const echo: RequestListener = async (req, res) => res.end(`<${req.method} ${req.url} ${await collect(req)}>`);

async function startEdge(httpLimits = {}): Promise<TestEdge> {
  const edge = await TestEdge.start({ httpLimits, services: new Map([['api.localhost', echo]]) });
  onTestFinished(() => edge.close());
  await edge.serve('cam.localhost', (_req, res) => res.end('<cam>'), { protocol: 'https' });
  return edge;
}

function enter(edge: TestEdge, options: ConnectionOptions = {}): TLSSocket {
  const { httpsPort: port, ca } = edge;
  const socket = connect({ host: '127.0.0.1', port, servername: 'api.localhost', ca: ca.caPem, ...options });
  onTestFinished(() => void socket.destroy());
  return socket.on('error', () => {});
}

/** Sends bytes; resolves with everything received until the edge closes. */
async function send(edge: TestEdge, bytes: string, options: ConnectionOptions = {}): Promise<string> {
  const socket = enter(edge, options);
  socket.write(bytes);
  return (await collect(socket)).toString();
}

const API = 'Host: api.localhost\r\n';
const CAM = 'Host: cam.localhost\r\n';
const answers = (text: string) => text.match(/<.*?>|HTTP\/1\.1 4\d\d/g);

describe("the gateway's own service answers", () => {
  it('a request whose body arrives with its head', async () => {
    const edge = await startEdge();
    const body = 'x'.repeat(300_000);
    const head = `POST /a HTTP/1.1\r\n${API}Connection: close\r\nContent-Length: ${body.length}\r\n\r\n`;
    expect(answers(await send(edge, head + body))).toEqual([`<POST /a ${body}>`]);
  });

  it('requests that follow one for an endpoint on its connection, and all requests after them', async () => {
    const edge = await startEdge();
    const bytes =
      `GET / HTTP/1.1\r\n${CAM}\r\nPOST /b HTTP/1.1\r\n${API}Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n` +
      `GET /c HTTP/1.1\r\n${API}\r\nGET / HTTP/1.1\r\n${CAM}Connection: close\r\n\r\n`;
    const text = await send(edge, bytes, { servername: 'cam.localhost' });
    expect(answers(text)).toEqual(['<cam>', '<POST /b ok>', '<GET /c >', 'HTTP/1.1 421']);
  });

  it('requests that are sent ahead one after another', async () => {
    const waiting: (() => void)[] = [];
    const slowly: RequestListener = (req, res) => void waiting.push(() => echo(req, res));
    const edge = await TestEdge.start({ services: new Map([['api.localhost', slowly]]) });
    onTestFinished(() => edge.close());
    const socket = enter(edge);
    const text = collect(socket);
    const upload = '/3'.repeat(10_000);
    // Each of the first two is whole at once, the third takes several reads.
    socket.write(`GET /1 HTTP/1.1\r\n${API}\r\nGET /2 HTTP/1.1\r\n${API}\r\n`);
    socket.write(`POST /3 HTTP/1.1\r\n${API}Content-Length: ${upload.length}\r\n\r\n${upload}`);
    socket.write(`GET /4 HTTP/1.1\r\n${API}Connection: close\r\n\r\n`);
    for (let served = 0; served < 4; served++) {
      await until(() => waiting.length > 0, `request ${served + 1}`);
      // What has arrived with it would be here by now.
      await new Promise(setImmediate);
      expect(waiting).toHaveLength(1);
      waiting.pop()?.();
    }
    expect(answers((await text).toString())).toEqual(['<GET /1 >', '<GET /2 >', `<POST /3 ${upload}>`, '<GET /4 >']);
  });

  it('no client that sends many requests ahead', async () => {
    const edge = await TestEdge.start({ services: new Map([['api.localhost', () => {}]]) });
    onTestFinished(() => edge.close());
    expect(await send(edge, `GET / HTTP/1.1\r\n${API}\r\n`.repeat(40))).toBe('');
  });

  it('browsers with many cookies that others have set, none of which it sees', async () => {
    const cookies: unknown[] = [];
    const listener: RequestListener = (req, res) => {
      cookies.push(req.headers.cookie);
      res.end('<ok>');
    };
    const edge = await TestEdge.start({ services: new Map([['api.localhost', listener]]) });
    onTestFinished(() => edge.close());
    // As many as Chromium keeps.
    const bomb = Array.from({ length: 180 }, (_, at) => `b${at}=${'x'.repeat(4090)}`).join('; ');
    for (const own of ['; __Host-own=1', '']) {
      // The next request of the connection would be too long for Node's parser.
      const text = await send(edge, `GET / HTTP/1.1\r\n${API}Cookie: ${bomb}${own}\r\n\r\n`);
      expect(answers(text)).toEqual(['<ok>']);
      expect(text).toContain('Connection: close\r\n');
    }
    expect(cookies).toEqual(['__Host-own=1', undefined]);
    const long = await send(edge, `GET / HTTP/1.1\r\n${API}Cookie: __Host-a=${'x'.repeat(70_000)}\r\n\r\n`);
    expect(answers(long)).toEqual(['HTTP/1.1 431']);
  });

  it('browsers with the order to come by HTTPS only', async () => {
    const text = await send(await startEdge(), `GET / HTTP/1.1\r\n${API}Connection: close\r\n\r\n`);
    expect(text).toContain('Strict-Transport-Security: max-age=31536000\r\n');
  });

  it('CONNECT with 400', async () => {
    const text = await send(await startEdge(), `CONNECT api.localhost:443 HTTP/1.1\r\n${API}\r\n`);
    expect(text).toMatch(/^HTTP\/1\.1 400 .*ERR_NGROK_3004/s);
  });

  it('a request with Expect: 100-continue', async () => {
    const edge = await startEdge();
    const head = `POST /d HTTP/1.1\r\n${API}Expect: 100-continue\r\nConnection: close\r\nContent-Length: 2\r\n\r\n`;
    const socket = enter(edge);
    socket.write(head);
    socket.once('data', (bytes) => String(bytes).startsWith('HTTP/1.1 100 ') && socket.write('ok'));
    expect(answers((await collect(socket)).toString())).toEqual(['<POST /d ok>']);
  });
});

describe('after its first request, a connection', () => {
  async function second(bytes: string): Promise<string> {
    const socket = enter(await startEdge());
    socket.write(`GET /e HTTP/1.1\r\n${API}\r\n`);
    await once(socket, 'data');
    socket.write(bytes);
    return (await collect(socket)).toString();
  }

  it.each([
    ['an unknown method', `JUMP / HTTP/1.1\r\n${API}\r\n`, 400],
    ['no Host header', 'GET / HTTP/1.1\r\nConnection: close\r\n\r\n', 400],
    ['headers over the limit', `GET / HTTP/1.1\r\n${API}A: ${'a'.repeat(70_000)}\r\n\r\n`, 431],
  ])('gets an error with a body for %s', async (_what, bytes, status) => {
    const text = await second(bytes);
    expect(answers(text)).toEqual([`HTTP/1.1 ${status}`]);
    expect(JSON.parse(text.slice(text.indexOf('\r\n\r\n')))).toMatchObject({ status_code: status, details: {} });
  });

  it('may send unknown expectations, which are ignored', async () => {
    const bytes = `GET /x HTTP/1.1\r\n${API}Expect: wonders\r\nConnection: close\r\n\r\n`;
    expect(answers(await second(bytes))).toEqual(['<GET /x >']);
  });
});

describe("a connection to the gateway's own service", () => {
  const first = `GET /e HTTP/1.1\r\n${API}\r\n`;

  it('gets a 408 when the next headers do not arrive in time', async () => {
    const edge = await startEdge({ headersTimeout: 600 });
    expect(answers(await send(edge, `${first}GET /next`))).toEqual(['<GET /e >', 'HTTP/1.1 408']);
  });

  it('is closed after the keep-alive timeout', async () => {
    const edge = await startEdge({ keepAliveTimeout: 300 });
    expect(answers(await send(edge, first))).toEqual(['<GET /e >']);
  });

  it('is closed when a body stalls', async () => {
    const edge = await startEdge({ idleTimeout: 300 });
    const text = await send(edge, `POST /f HTTP/1.1\r\n${API}Content-Length: 2\r\n\r\no`);
    expect(answers(text)).toBeNull();
  });

  it("allows a headers timeout above Node's request timeout", async () => {
    const edge = await startEdge({ headersTimeout: 600_000 });
    const text = await send(edge, first.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'));
    expect(answers(text)).toEqual(['<GET /e >']);
  });
});
