import { once } from 'node:events';
import { request } from 'node:https';
import { connect } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { HttpChallenges, TlsAlpnChallenges } from '../../../src/gateway/certificates/challenges/challenges.ts';
import { collect, TestEdge } from '../../support/edge.ts';
import { ask } from '../../support/http-request.ts';

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
