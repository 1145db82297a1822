import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { connect } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { HttpChallenges, TlsAlpnChallenges } from '../../../src/gateway/certificates/challenges/challenges.ts';
import { collect, TestEdge } from '../../support/edge.ts';
import { ask } from '../../support/http-request.ts';
import { answerOn, openHttp2 } from '../../support/http2-client.ts';

let edge: TestEdge;
const challenges = { http: new HttpChallenges(), tlsAlpn: new TlsAlpnChallenges() };

beforeAll(async () => {
  edge = await TestEdge.start({ challenges });
  await edge.serve('plain.localhost', (_req, res) => res.end('plain'));
  await edge.serve('secure.localhost', (_req, res) => res.end('secure'), { protocol: 'https' });
  await edge.serve('pass.localhost', (_req, res) => res.end(), { protocol: 'tls' });
});
afterAll(() => edge.close());

describe('routing over HTTP', () => {
  it.each(['plain.localhost', 'PLAIN.LocalHost', 'plain.localhost:8080', 'plain.localhost.', 'plain.localhost.:80'])(
    'finds the endpoint of %s',
    async (host) => {
      expect((await ask(edge.httpPort, host)).body).toBe('plain');
    },
  );

  it.each(['other.localhost', 'localhost', 'sub.plain.localhost', '[::1]:80', '%', 'constructor'])(
    'answers 404 for %s',
    async (host) => {
      const answer = await ask(edge.httpPort, host);
      expect(answer.status).toBe(404);
      expect(answer.headers['ngrok-error-code']).toBe('ERR_NGROK_3200');
      expect(JSON.parse(answer.body)).toMatchObject({ error_code: 'ERR_NGROK_3200', status_code: 404 });
    },
  );

  it('shows browsers an error page with the host escaped', async () => {
    const headers = { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' };
    const answer = await ask(edge.httpPort, "a&b'c.localhost", { headers });
    expect(answer.headers['content-type']).toBe('text/html; charset=utf-8');
    expect(answer.body).toContain('ERR_NGROK_3200');
    expect(answer.body).toContain('a&#38;b&#39;c.localhost');
  });

  it('redirects to an endpoint that has TLS only and keeps the method of a POST', async () => {
    const get = await ask(edge.httpPort, 'secure.localhost', { path: '/a?b=c' });
    expect([get.status, get.headers.location]).toEqual([302, 'https://secure.localhost:9999/a?b=c']);
    const post = await ask(edge.httpPort, 'secure.localhost', { body: 'x' });
    expect(post.status).toBe(308);
    const tls = await ask(edge.httpPort, 'pass.localhost', { path: '/a' });
    expect([tls.status, tls.headers.location]).toEqual([302, 'https://pass.localhost:9999/a']);
  });

  it('answers an HTTP-01 challenge, and reads no expected body as a request', async () => {
    onTestFinished(challenges.http.publish('plain.localhost', 'token', 'token.thumbprint'));
    const head = 'POST /.well-known/acme-challenge/token HTTP/1.1\r\nHost: plain.localhost\r\n';
    const smuggled = 'GET / HTTP/1.1\r\nHost: plain.localhost\r\n\r\n';
    const text = await edge.raw(`${head}Expect: 100-continue\r\nContent-Length: ${smuggled.length}\r\n\r\n${smuggled}`);
    expect(text).toMatch(/^HTTP\/1\.1 200 .*\r\nConnection: close\r\n\r\ntoken\.thumbprint$/s);
  });

  it('serves requests for different hosts on one connection', async () => {
    const one = 'GET / HTTP/1.1\r\nHost: plain.localhost\r\n\r\n';
    const two = 'GET / HTTP/1.1\r\nHost: unknown.localhost\r\nConnection: close\r\n\r\n';
    const text = await edge.raw(one + two);
    expect(text).toMatch(/^HTTP\/1.1 200.*plain.*HTTP\/1.1 404/s);
  });
});

/** More cookies than fit into a head, as a page can set them for all names below its domain. */
const BOMB = Array.from({ length: 20 }, (_, at) => `bomb${at}=${'x'.repeat(4000)}`).join('; ');
const HTML = { accept: 'text/html', cookie: BOMB };

describe('a request with too many cookies', () => {
  const secure = async (headers: Record<string, string>) => {
    const { port, ca } = { port: edge.httpsPort, ca: edge.ca.caPem };
    const { ':method': method, ':path': path, ...rest } = headers;
    const asking = request({
      ...{ host: '127.0.0.1', port, ca, agent: false, servername: 'secure.localhost' },
      method,
      path,
      headers: { host: 'secure.localhost', ...rest },
    }).end();
    const [response] = (await once(asking, 'response')) as [IncomingMessage];
    return { status: response.statusCode, headers: response.headers, body: (await collect(response)).toString() };
  };
  const http2 = async (headers: Record<string, string>) => {
    const session = await openHttp2(edge, 'secure.localhost');
    onTestFinished(() => session.destroy());
    const { cookie = '', ...rest } = headers;
    const answer = await answerOn(
      session.request({ ':authority': 'secure.localhost', ':path': '/', ...rest, cookie: cookie.split('; ') }),
    );
    return { ...answer, status: answer.headers[':status'] };
  };

  it.each([
    ['HTTP/1', secure],
    ['HTTP/2', http2],
  ])('gets a page that offers to delete them, which its button does, over %s', async (_version, send) => {
    const page = await send(HTML);
    expect(page).toMatchObject({ status: 431, headers: { 'ngrok-error-code': 'ERR_NGROK_3004' } });
    expect(page.headers['clear-site-data']).toBeUndefined();
    expect(page.body).toContain('sends 79 KB of cookies');
    const [, action = ''] = /<form method="post" action="([^"]+)">/.exec(page.body) ?? [];
    const press = (more: Record<string, string>) => send({ ...HTML, ':method': 'POST', ':path': action, ...more });
    const pressed = await press({ origin: 'https://secure.localhost', 'sec-fetch-site': 'same-origin' });
    expect(pressed).toMatchObject({ status: 200, headers: { 'clear-site-data': '"cookies"' } });
    // No page of a neighbour signs people out everywhere.
    for (const more of [
      { origin: 'https://evil.localhost', 'sec-fetch-site': 'same-site' },
      { origin: 'https://secure.localhost', 'sec-fetch-site': 'same-site' },
      {},
      { ':method': 'GET' },
    ]) {
      expect(await press(more)).toMatchObject({ status: 431 });
    }
  });

  it('is asked to come over HTTP/1.1 when it has more than nine frames of HTTP/2', async () => {
    const session = await openHttp2(edge, 'secure.localhost');
    onTestFinished(() => session.destroy());
    const stream = session.request({ ':path': '/', cookie: [BOMB, BOMB, BOMB].flatMap((some) => some.split('; ')) });
    stream.on('error', () => {});
    const [code] = await once(session, 'goaway');
    expect(code).toBe(13);
  });

  it('leaves the path of the button to the endpoint when it has few', async () => {
    const headers = { ':method': 'POST', ':path': '/ngrok/clear-cookies', origin: 'https://secure.localhost' };
    expect((await secure(headers)).body).toBe('secure');
  });

  it('is told so over HTTP, where browsers would not delete them, and as a program in JSON', async () => {
    const page = await ask(edge.httpPort, 'plain.localhost', { headers: HTML });
    expect(page).toMatchObject({ status: 431, body: expect.stringContaining('KB of cookies') });
    expect(page.body).not.toContain('<form');
    const program = await ask(edge.httpPort, 'plain.localhost', { headers: { cookie: BOMB } });
    expect(JSON.parse(program.body)).toMatchObject({ error_code: 'ERR_NGROK_3004', status_code: 431 });
  });

  it.each([
    ['other headers are', { 'x-long': 'x'.repeat(70_000), cookie: 'a=1' }],
    ['they are more than browsers keep', { cookie: 'x'.repeat(1_100_000) }],
  ])('gets no button when %s too long', async (_what, headers) => {
    const answer = await secure({ accept: 'text/html', ...headers });
    expect(answer.status).toBe(431);
    expect(answer.body).not.toContain('<form');
  });

  it('gets no memory for thousands of lines', async () => {
    const text = await edge.raw(`GET / HTTP/1.1\r\nHost: plain.localhost\r\n${'a:\r\n'.repeat(20_000)}\r\n`);
    expect(text).toMatch(/^HTTP\/1\.1 431 /);
  });
});

describe('routing over HTTPS', () => {
  it('serves an endpoint with its own certificate', async () => {
    expect(await get('secure.localhost')).toBe('secure');
  });

  it('issues one certificate for many concurrent clients', async () => {
    await edge.serve('busy.localhost', (_req, res) => res.end('busy'), { protocol: 'https' });
    const serials = await Promise.all(Array.from({ length: 20 }, () => serialOf('busy.localhost')));
    expect(new Set(serials).size).toBe(1);
  });

  it('issues no certificate for unknown names, and answers clients that ignore the mismatch with 404', async () => {
    await expect(get('unknown.localhost')).rejects.toThrow(/altnames/);
    expect(await get('unknown.localhost', false)).toContain('ERR_NGROK_3200');
  });

  it('does not serve an http endpoint', async () => {
    expect(await get('plain.localhost', false)).toContain('ERR_NGROK_3200');
  });

  it('presents a default certificate to clients without SNI', async () => {
    const socket = connect({ host: '127.0.0.1', port: edge.httpsPort, ca: edge.ca.caPem });
    await once(socket, 'secureConnect');
    expect(socket.authorized).toBe(true);
    socket.destroy();
  });
});

async function get(host: string, verify = true): Promise<string> {
  const answer = await new Promise<AsyncIterable<Buffer>>((resolve, reject) => {
    request(
      {
        host: '127.0.0.1',
        port: edge.httpsPort,
        servername: host,
        headers: { host },
        ca: edge.ca.caPem,
        rejectUnauthorized: verify,
        agent: false,
      },
      resolve,
    )
      .on('error', reject)
      .end();
  });
  return (await collect(answer)).toString();
}

async function serialOf(servername: string): Promise<string> {
  const socket = connect({ host: '127.0.0.1', port: edge.httpsPort, servername, ca: edge.ca.caPem });
  await once(socket, 'secureConnect');
  const { serialNumber } = socket.getPeerCertificate();
  socket.destroy();
  return serialNumber;
}
