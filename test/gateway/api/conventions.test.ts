import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { gzipSync } from 'node:zlib';
import request from 'supertest';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { issueApiKey, issueCredential } from '../../../src/gateway/store/tokens.ts';
import { type Answer, type ManagementServer, startManagementServer } from '../../support/management-server.ts';
import { until } from '../../support/until.ts';

let server: ManagementServer;
beforeAll(async () => {
  server = await startManagementServer();
});
afterAll(() => server.close());

function codeOf(answer: Answer): [number, unknown] {
  return [answer.status, answer.body.error_code];
}

describe('authentication', () => {
  it.each([
    ['', 200],
    ['Basic YTpi', 201],
    ['Bearer', 201],
    ['Bearer two words', 201],
    ['Bearer noseparator', 202],
    ['Bearer ak_32ELEkz2jOTMtPWtYLYm5yxBjvW', 208],
    ['Bearer 32ELEkz2jOTMtPWtYLYm5yxBjvW_1234567890123456789012', 203],
  ])('refuses Authorization: %j with ERR_NGROK_%i', async (header, code) => {
    const answer = await server.call('GET', '/bot_users', undefined, { Authorization: header });
    expect(codeOf(answer)).toEqual([403, `ERR_NGROK_${code}`]);
    expect(answer.headers.has('WWW-Authenticate')).toBe(false);
  });

  it('accepts the scheme in any case', async () => {
    const answer = await server.call('GET', '/bot_users', undefined, { Authorization: `bEARER ${server.apiKey}` });
    expect(answer.status).toBe(200);
  });

  it('refuses an authtoken with its own code', async () => {
    const { token } = await server.store.database.write(() => issueCredential(server.store, { acl: [] }));
    const answer = await server.call('GET', '/bot_users', undefined, { Authorization: `Bearer ${token}` });
    expect(codeOf(answer)).toEqual([403, 'ERR_NGROK_206']);
  });

  it('refuses a known key id with a wrong secret', async () => {
    const wrong = `${server.apiKey.slice(0, -1)}${server.apiKey.endsWith('1') ? '2' : '1'}`;
    const answer = await server.call('GET', '/bot_users', undefined, { Authorization: `Bearer ${wrong}` });
    expect(codeOf(answer)).toEqual([403, 'ERR_NGROK_203']);
  });

  it('never repeats the presented key in the response or the log', async () => {
    const secret = 'Zq7secretZq7secretZq7s';
    const answer = await server.call('GET', '/bot_users', undefined, { Authorization: `Bearer 32ELEkz2_${secret}` });
    expect(JSON.stringify(answer.body)).not.toContain(secret.slice(0, 8));
    expect(server.logged()).not.toContain(secret.slice(0, 8));
    expect(server.logged()).not.toContain(server.apiKey.split('_')[1]);
  });

  it('refuses API keys of inactive and deleted bot users', async () => {
    const bot = await server.call('POST', '/bot_users');
    const { token } = await server.store.database.write(() => issueApiKey(server.store, { owner_id: bot.id }));
    const headers = { Authorization: `Bearer ${token}` };
    expect((await server.call('GET', '/bot_users', undefined, headers)).status).toBe(200);
    await server.call('PATCH', `/bot_users/${bot.id}`, { active: false });
    expect(codeOf(await server.call('GET', '/bot_users', undefined, headers))).toEqual([403, 'ERR_NGROK_203']);
    await server.call('DELETE', `/bot_users/${bot.id}`);
    expect(codeOf(await server.call('GET', '/bot_users', undefined, headers))).toEqual([403, 'ERR_NGROK_203']);
  });
});

describe('the version header', () => {
  it.each([
    [{ 'Service-Version': '2' }, 200, undefined],
    [{ 'Service-Version': '', 'Ngrok-Version': '2' }, 200, undefined],
    [{ 'Service-Version': '2', 'Ngrok-Version': '2' }, 200, undefined],
    [{ 'Service-Version': '' }, 400, 'ERR_NGROK_218'],
    [{ 'Service-Version': '3' }, 400, 'ERR_NGROK_217'],
    [{ 'Service-Version': '2', 'Ngrok-Version': '1' }, 400, 'ERR_NGROK_217'],
  ])('%j answers %i', async (headers, status, code) => {
    expect(codeOf(await server.call('GET', '/bot_users', undefined, headers))).toEqual([status, code]);
  });

  it('is checked after the API key', async () => {
    const answer = await server.call('GET', '/bot_users', undefined, { Authorization: '', 'Service-Version': '' });
    expect(codeOf(answer)).toEqual([403, 'ERR_NGROK_200']);
  });
});

describe('paths', () => {
  it.each([
    ['GET', '/nope'],
    ['GET', '/bot_users/'],
    ['GET', '/Bot_Users'],
    ['PUT', '/bot_users/bot_1'],
    ['POST', '/bot_users/bot_1'],
    ['DELETE', '/bot_users'],
    ['OPTIONS', '/bot_users'],
    ['GET', '/reserved_domains/rd_1/certificate'],
    ['PUT', '/edges/tls/edgtls_1/policy'],
    ['GET', '/bot_users/%E0%A4%A'],
  ])('%s %s answers 404 before authentication', async (method, path) => {
    const answer = await server.call(method, path, undefined, { Authorization: '' });
    expect(answer.status).toBe(404);
    expect(answer.body).toEqual({
      error_code: 'ERR_GATEWAY_NO_SUCH_PATH',
      status_code: 404,
      msg: 'Not Found',
      details: { path },
    });
  });

  it('answer 404 to HEAD', async () => {
    const response = await fetch(`${server.url}/bot_users`, { method: 'HEAD' });
    expect(response.status).toBe(404);
  });

  it('answer a malformed id like an unknown one', async () => {
    for (const id of [
      'rd_32ELEkz2jOTMtPWtYLYm5yxBjvW',
      'bot_32ELEkz2jOTMtPWtYLYm5yxBjvW',
      'x',
      "bot_' OR 1=1",
      'bot_1\0',
    ]) {
      const answer = await server.call('GET', `/bot_users/${encodeURIComponent(id)}`);
      expect(codeOf(answer)).toEqual([404, 'ERR_NGROK_222']);
    }
  });
});

describe('bodies', () => {
  const post = (body: string, type: string) => server.call('POST', '/bot_users', body, { 'Content-Type': type });

  it('may be empty when no member is required', async () => {
    expect((await server.call('POST', '/bot_users')).status).toBe(201);
    expect((await server.call('POST', '/bot_users', undefined, { 'Content-Type': 'application/json' })).status).toBe(
      201,
    );
  });

  it('must be JSON objects in UTF-8', async () => {
    expect((await post('{"name":"ü"}', 'application/json; charset=utf-8')).body.name).toBe('ü');
    expect((await post('{}', 'Application/JSON')).status).toBe(201);
    expect(codeOf(await post('{}', 'text/plain'))).toEqual([415, 'ERR_NGROK_210']);
    expect(codeOf(await post('{}', 'application/json; charset=latin1'))).toEqual([415, 'ERR_NGROK_210']);
    for (const body of ['{', '[]', '"x"', 'null', '7', '{"a":1}x']) {
      expect(codeOf(await post(body, 'application/json'))).toEqual([400, 'ERR_NGROK_213']);
    }
  });

  it('must have a content type', async () => {
    const answer = await new Promise<string>((resolve, reject) => {
      const headers = { Authorization: `Bearer ${server.apiKey}`, 'Service-Version': '2' };
      const sent = httpRequest(`${server.url}/bot_users`, { method: 'POST', headers }, (response) => {
        response.setEncoding('utf8').on('data', resolve);
      });
      sent.on('error', reject).end('{}');
    });
    expect(JSON.parse(answer)).toMatchObject({ status_code: 400, error_code: 'ERR_NGROK_216' });
  });

  it('are refused when they are not UTF-8', async () => {
    const response = await fetch(`${server.url}/bot_users`, {
      method: 'POST',
      headers: {
        Authorization: `Bearer ${server.apiKey}`,
        'Service-Version': '2',
        'Content-Type': 'application/json',
      },
      body: Buffer.from('7b226e616d65223a22ff227d', 'hex'),
    });
    expect(await response.json()).toMatchObject({ status_code: 400, error_code: 'ERR_NGROK_213' });
  });

  it.each(['a\0b', '\ud800', 'x\udc00y'])('are refused with %j, which the database cannot store', async (name) => {
    expect(codeOf(await server.call('POST', '/bot_users', { name }))).toEqual([400, 'ERR_NGROK_213']);
    expect(codeOf(await server.call('POST', '/backends/tunnel_group', { labels: { [name]: 'x' } }))[1]).toBe(
      'ERR_NGROK_213',
    );
    expect((await server.call('POST', '/bot_users', { name: '💥\u0001' })).body.name).toBe('💥\u0001');
  });

  it('answer 400 when nested 200,000 levels deep', async () => {
    const deep = `{"name":${'['.repeat(200_000)}${']'.repeat(200_000)}}`;
    expect((await post(deep, 'application/json')).status).toBe(400);
    expect((await post(deep.replace('{', '{"x":"\\u0041",'), 'application/json')).status).toBe(400);
  });

  it('are refused above 1 MiB', async () => {
    const name = 'x'.repeat(1024 * 1024);
    expect(codeOf(await post(JSON.stringify({ name }), 'application/json'))).toEqual([400, 'ERR_NGROK_212']);
  });

  it('may be compressed; a wrong encoding has its own error', async () => {
    const send = async (body: string | Buffer, encoding: string) => {
      const headers = { 'Content-Type': 'application/json', 'Content-Encoding': encoding };
      const { apiKey } = server;
      const authorized = { ...headers, Authorization: `Bearer ${apiKey}`, 'Service-Version': '2' };
      const response = await fetch(`${server.url}/bot_users`, { method: 'POST', body, headers: authorized });
      return response.json();
    };
    expect(await send(gzipSync('{"name":"small"}'), 'gzip')).toMatchObject({ name: 'small' });
    expect(await send('{}', 'gzip')).toMatchObject({
      error_code: 'ERR_NGROK_212',
      msg: expect.stringMatching(/encoded/),
    });
    expect(await send('{}', 'zip')).toMatchObject({
      status_code: 415,
      error_code: 'ERR_NGROK_210',
      msg: expect.stringMatching(/content encoding/),
    });
    const bomb = gzipSync(`{"name":"${'x'.repeat(1024 * 1024)}"}`);
    expect(await send(bomb, 'gzip')).toMatchObject({
      error_code: 'ERR_NGROK_212',
      msg: expect.stringMatching(/1048576/),
    });
  });

  it.each(['{"labels":{"__proto__":"x","app":"web"}}', '{"labels":{"\\u005f_proto__":"x"}}', '{"__proto__":{}}'])(
    'are refused with %s, whose __proto__ would be dropped',
    async (body) => {
      const json = { 'Content-Type': 'application/json' };
      expect(codeOf(await server.call('POST', '/backends/tunnel_group', body, json))).toEqual([400, 'ERR_NGROK_213']);
    },
  );

  it('are ignored by operations without a body, like content types', async () => {
    const { id } = await server.call('POST', '/bot_users');
    const json = { 'Content-Type': 'application/json' };
    expect((await server.call('GET', `/bot_users/${id}`, undefined, json)).status).toBe(200);
    expect((await server.call('DELETE', `/bot_users/${id}`, '{"id":', json)).status).toBe(204);
  });

  it('are refused when they do not arrive in time', async () => {
    const slow = await startManagementServer({ settings: { body: { maxBytes: 1024, timeoutMs: 50 } } });
    const socket = connect(Number(new URL(slow.url).port), '127.0.0.1');
    socket.write(
      `POST /bot_users HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${slow.apiKey}\r\nService-Version: 2\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{`,
    );
    const answer = await new Promise<string>((resolve) => socket.once('data', (data) => resolve(data.toString())));
    expect(answer).toContain('ERR_NGROK_212');
    socket.destroy();
    await slow.close();
  });
});

it('a request that the client aborts is not logged as a success', async () => {
  const logged = server.logged().length;
  const socket = connect(Number(new URL(server.url).port), '127.0.0.1');
  socket.write(
    `POST /bot_users HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${server.apiKey}\r\nService-Version: 2\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{`,
    () => socket.resetAndDestroy(),
  );
  const lines = () => server.logged().slice(logged);
  await until(() => lines() !== '', 'the line in the log');
  expect(JSON.parse(lines())).toMatchObject({ msg: 'management request', status: 'aborted' });
});

it('changes that are asked for without an API key are logged once a minute, however many and long', async () => {
  const own = await startManagementServer();
  const path = `/${'x'.repeat(4_000)}`;
  for (let count = 0; count < 20; count++) await own.call('POST', path, {}, { Authorization: '' });
  for (let count = 0; count < 2; count++) await own.call('POST', '/bot_users', { name: 1 });
  await own.close();
  const lines = own.logged().split('\n').filter(Boolean);
  const infos = lines.map((line) => JSON.parse(line)).filter(({ level }) => level >= 30);
  expect(infos.map(({ path, times }) => [path.length, times])).toEqual([
    [200, 1],
    [10, undefined],
    [10, undefined],
  ]);
});

describe('queries', () => {
  it.each([
    ['/bot_users?limit=0', 233],
    ['/bot_users?limit=101', 233],
    ['/bot_users?limit=-1', 233],
    ['/bot_users?limit=ten', 244],
    ['/bot_users?limit=1.5', 244],
    ['/bot_users?limit=1&limit=2', 232],
    ['/bot_users?before_id=bot_1&beforeId=bot_2', 232],
    ['/bot_users?before_id=rd_1', 227],
    ['/bot_users?before_id=bot_', 227],
    ['/bot_users?before_id=bot_a-b', 227],
    ['/bot_users?limit=&before_id=', 0],
    ['/bot_users?filter=x', 231],
    ['/bot_users?toString=x', 231],
    ['/bot_users?__proto__=1', 231],
    ['/bot_users/bot_1?x=1', 231],
  ])('%s', async (path, code) => {
    const expected = code === 0 ? [200, undefined] : [400, `ERR_NGROK_${code}`];
    expect(codeOf(await server.call('GET', path))).toEqual(expected);
  });
});

describe('every response', () => {
  it('has a unique operation id in both headers, error details and the log', async () => {
    const answer = await server.call('POST', '/bot_users', { nope: 1 });
    const id = String(answer.headers.get('Service-Operation-Id'));
    expect(id).toMatch(/^op_[0-9A-Za-z]{27}$/);
    expect(answer.headers.get('Ngrok-Operation-Id')).toBe(id);
    expect(answer.body.details).toEqual({ operation_id: id });
    await expect.poll(() => server.logged()).toContain(id);
    const next = await server.call('GET', '/bot_users');
    expect(next.headers.get('Service-Operation-Id')).not.toBe(id);
  });

  it('has a body, even to If-None-Match: *', async () => {
    // Not with fetch, which would send Cache-Control: no-cache as well.
    const headers = { Authorization: `Bearer ${server.apiKey}`, 'Service-Version': '2', 'If-None-Match': '*' };
    const { status, body } = await request(server.url).get('/bot_users').set(headers);
    expect([status, Object.keys(body)]).toEqual([200, ['bot_users', 'uri', 'next_page_uri']]);
  });

  it('to an internal error is an error body that reveals nothing', async () => {
    const broken = await startManagementServer();
    broken.store.botUsers.insert = () => {
      throw new Error('the disk says secret things');
    };
    const answer = await broken.call('POST', '/bot_users');
    expect(answer.status).toBe(500);
    expect(answer.body).toMatchObject({ status_code: 500, msg: expect.not.stringContaining('disk') });
    expect(broken.logged()).toContain('the disk says secret things');
    await broken.close();
  });
});

describe('the OpenAPI document', () => {
  it.each(['/openapi.json', '/bot_users', '/no-such-path'])(
    '%s answers JSON that ends with a newline',
    async (path) => {
      const response = await fetch(server.url + path);
      expect(response.headers.get('content-type')).toBe('application/json; charset=utf-8');
      expect(await response.text()).toMatch(/\}\n$/);
    },
  );

  it('is served without authentication', async () => {
    const response = await fetch(`${server.url}/openapi.json`);
    expect(await response.json()).toMatchObject({ openapi: '3.1.0', servers: [{ url: 'https://api.gateway.test' }] });
  });
});
