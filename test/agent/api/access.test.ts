import { createServer, IncomingMessage } from 'node:http';
import { connect, Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import request from 'supertest';
import { describe, expect, it } from 'vitest';
import { createLocalApp, createRemoteApp } from '../../../src/agent/api/app.ts';
import { TokenGate } from '../../../src/agent/api/bearer-auth.ts';
import { setUpApi, TOKEN } from '../../support/api-set-up.ts';
import { serving } from '../../support/loopback.ts';

describe('the local API', () => {
  it.each(['127.0.0.1:4040', 'localhost', 'LOCALHOST:1', '[::1]:4040', '127.0.0.2'])(
    'answers requests for host %s',
    async (host) => {
      const { local } = await setUpApi();
      expect((await request(local).get('/tunnels').set('Host', host)).status).toBe(200);
    },
  );

  it.each([
    'evil.example',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    '10.0.0.1',
    '0.0.0.0',
    'localhost@evil.example',
    '',
  ])('refuses requests for host %j (DNS rebinding)', async (host) => {
    const { local } = await setUpApi();
    const res = await request(local).get('/tunnels').set('Host', host);
    expect(res.status).toBeGreaterThanOrEqual(400);
    expect(res.body).not.toBeInstanceOf(Array);
  });

  it.each([
    [{ 'Sec-Fetch-Site': 'cross-site' }, 403],
    [{ 'Sec-Fetch-Site': 'same-site' }, 403],
    [{ 'Sec-Fetch-Site': 'same-origin' }, 200],
    [{ 'Sec-Fetch-Site': 'none' }, 200],
    [{ Origin: 'https://evil.example' }, 403],
    [{ Origin: 'null' }, 403],
    [{ Origin: 'http://localhost:3000' }, 403],
    [{ Origin: 'http://localhost:4040' }, 200],
  ])('answers a browser request with %j with %i', async (headers, status) => {
    const { local } = await setUpApi();
    const res = await request(local).get('/tunnels').set('Host', 'localhost:4040').set(headers);
    expect(res.status).toBe(status);
    expect(res.headers['access-control-allow-origin']).toBeUndefined();
  });

  it.each([
    ['X-Forwarded-For', '6.6.6.6'],
    ['X-Forwarded-Host', 'localhost'],
    ['Forwarded', 'for=6.6.6.6'],
    ['X-Forwarded-For', ''],
    ['Via', '1.1 proxy'],
    ['X-Real-IP', '6.6.6.6'],
    ['CF-Connecting-IP', '6.6.6.6'],
    ['True-Client-IP', '6.6.6.6'],
    ['X-Forwarded-Proto', 'https'],
  ])('refuses requests forwarded by a proxy, with %s: %s', async (name, value) => {
    const { local } = await setUpApi();
    for (const path of ['/tunnels', '/healthz']) {
      const res = await request(local).get(path).set('Host', 'localhost:4040').set(name, value);
      expect([res.status, res.body.error_code]).toEqual([403, 'ERR_AGENT_FORWARDED']);
    }
  });

  it('refuses a request with a second Host header, which a proxy may have added', async () => {
    const { local } = await setUpApi();
    const port = await serving(createServer(local));
    const socket = connect(port, '127.0.0.1');
    socket.write('GET /tunnels HTTP/1.1\r\nHost: localhost\r\nHost: device.example.com\r\nConnection: close\r\n\r\n');
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 400 .*ERR_AGENT_INVALID_REQUEST/s);
  });

  it('requires the token on any address but loopback, for any host', async () => {
    const { options } = await setUpApi();
    const app = createLocalApp(options, '0.0.0.0', () => TOKEN);
    expect((await request(app).get('/tunnels').set('Host', 'device.lan')).status).toBe(401);
    const allowed = await request(app).get('/tunnels').set('Host', 'device.lan').auth(TOKEN, { type: 'bearer' });
    expect(allowed.status).toBe(200);
  });
});

describe('the remote API', () => {
  it('only answers /healthz without the token', async () => {
    const { remote } = await setUpApi();
    for (const path of ['/tunnels', '/status', '/metrics', '/readyz', '/nothing']) {
      const res = await request(remote).get(path);
      expect([res.status, res.body.error_code]).toEqual([401, 'ERR_AGENT_UNAUTHORIZED']);
      expect(res.headers['www-authenticate']).toMatch(/^Bearer/);
    }
    expect((await request(remote).get('/healthz')).text).toBe('{"status":"alive"}\n');
  });

  it.each([
    [`Bearer ${TOKEN}`, 200],
    [`bearer  ${TOKEN}`, 200],
    [`Bearer ${TOKEN}x`, 401],
    [`Bearer ${TOKEN.slice(1)}`, 401],
    [`Basic ${TOKEN}`, 401],
    [TOKEN, 401],
    ['Bearer', 401],
  ])('answers Authorization: %s with %i', async (authorization, status) => {
    const { remote } = await setUpApi();
    expect((await request(remote).get('/tunnels').set('Authorization', authorization)).status).toBe(status);
  });

  it('requires the token for local host names, too', async () => {
    const { remote } = await setUpApi();
    expect((await request(remote).get('/tunnels').set('Host', '127.0.0.1')).status).toBe(401);
  });

  it('needs no token only when created without one', async () => {
    const { options } = await setUpApi();
    expect((await request(createRemoteApp(options, null)).get('/tunnels')).status).toBe(200);
  });

  it('slows down wrong tokens by client address as the gateway saw it, never the right one', async () => {
    const { remote } = await setUpApi();
    const call = (from: string, token: string) =>
      request(remote).get('/tunnels').set('X-Forwarded-For', from).auth(token, { type: 'bearer' });
    for (let n = 0; n < 5; n++) expect((await call(`1.2.3.${n}, 6.6.6.6`, 'guess')).status).toBe(401);
    const sixth = await call('9.9.9.9, 6.6.6.6', 'guess');
    expect([sixth.status, sixth.body.error_code]).toEqual([429, 'ERR_AGENT_TOO_MANY_ATTEMPTS']);
    expect(Number(sixth.headers['retry-after'])).toBeLessThanOrEqual(2);
    expect((await call('6.6.6.6, 7.7.7.7', 'guess')).status).toBe(401);
    expect((await call('9.9.9.9, 6.6.6.6', TOKEN)).status).toBe(200);
    expect((await request(remote).get('/tunnels').set('X-Forwarded-For', '6.6.6.6')).status).toBe(401);
  });
});

describe('wrong attempts', () => {
  const setUp = () => {
    let now = 0;
    const gate = new TokenGate({ token: () => TOKEN, clientOf: ({ url = '' }) => url, now: () => now });
    /** The status and the Retry-After that a client gets. */
    const guess = (client: string) => {
      const { status, retryAfter } = gate.wrong(
        Object.assign(new IncomingMessage(new Socket()), { url: client }),
        'wrong',
      );
      return [status, retryAfter];
    };
    const pass = (ms: number) => {
      now += ms;
    };
    return { guess, pass };
  };

  it('stop counting after two seconds each', () => {
    const { guess, pass } = setUp();
    for (let n = 0; n < 5; n++) expect(guess('a')).toEqual([401, null]);
    expect(guess('a')).toEqual([429, 2]);
    expect(guess('b')).toEqual([401, null]);
    pass(2_000);
    expect(guess('a')).toEqual([401, null]);
    expect(guess('a')).toEqual([429, 2]);
  });

  it('from one IPv6 network count as one client’s', async () => {
    const { remote } = await setUpApi();
    const call = (from: string) =>
      request(remote).get('/tunnels').set('X-Forwarded-For', from).auth('guess', { type: 'bearer' });
    for (let n = 0; n < 5; n++) expect((await call(`2001:db8:1:2::${n}`)).status).toBe(401);
    expect((await call('2001:db8:1:ff::1')).status).toBe(429);
    expect((await call('2001:db8:1:102::1')).status).toBe(401);
  });

  it('from many clients delay only those clients', () => {
    const { guess } = setUp();
    for (let n = 0; n < 5_000; n++) guess(`bot ${n}`);
    for (let n = 0; n < 5; n++) guess('last bot');
    expect(guess('owner, from a new address')).toEqual([401, null]);
    expect(guess('last bot')).toEqual([429, 2]);
  });
});
