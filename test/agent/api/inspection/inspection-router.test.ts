import { createServer as createTcpServer } from 'node:net';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import request from 'supertest';
import { describe, expect, it, onTestFinished } from 'vitest';
import { setUpApi, TOKEN } from '../../../support/api-set-up.ts';
import { startHttpService } from '../../../support/http-service.ts';
import { freePort, serving } from '../../../support/loopback.ts';
import { OpenApiCheck } from '../../../support/openapi-check.ts';

const INSPECTION = '/tunnels/cam/inspection';
const REQUESTS = '/tunnels/cam/requests';

/** A tunnel `cam` that is inspected, unless `inspect` is false. */
async function setUp({ forwards_to = '8001', inspect = true } = {}) {
  const api = await setUpApi();
  const { local, connector } = api;
  await request(local).post('/tunnels').send({ forwards_to, domain: 'cam.localhost' }).expect(200);
  if (inspect) await request(local).put(INSPECTION).send({}).expect(200);
  const upstreamOf = () => connector.requests.at(-1)?.upstream;
  /** A connection of a client, with what passes. */
  const pass = (client: string | Buffer, upstream: string | Buffer) => {
    const traffic = upstreamOf()?.observeConnection?.();
    traffic?.fromClient(Buffer.from(client));
    traffic?.toClient(Buffer.from(upstream));
    return traffic;
  };
  return { ...api, pass, upstreamOf };
}

const post = (path: string, body: string, headers = '') =>
  `POST ${path} HTTP/1.1\r\nHost: cam.localhost:8443\r\nX-Forwarded-For: 192.0.2.1, 203.0.113.5\r\n${headers}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
const answer = (status: string, body: string | Buffer, headers = '') =>
  Buffer.concat([
    Buffer.from(`HTTP/1.1 ${status}\r\n${headers}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n`),
    Buffer.from(body),
  ]);
const OK = answer('200 OK', 'ok', 'Content-Type: text/plain\r\n');

describe('the inspection of a tunnel', () => {
  it('is off at first, on for the time that is asked for, and off when it is ended', async () => {
    const { local, pass } = await setUp({ inspect: false });
    pass(post('/before', ''), OK);
    expect((await request(local).get(INSPECTION)).body).toEqual({
      state: 'off',
      until: null,
      requests: 0,
      held_bytes: 0,
      max_bytes: 16_777_216,
      max_body_bytes: 262_144,
      gateway_reports: 'off',
      gateway_missed: 0,
    });
    const began = Date.now();
    const { body } = await request(local).put(INSPECTION).send({ duration_seconds: 60 });
    expect(body.state).toBe('on');
    expect(Date.parse(body.until) - began).toBeGreaterThanOrEqual(60_000);
    expect(Date.parse(body.until) - Date.now()).toBeLessThanOrEqual(60_000);
    pass(post('/during', ''), OK);
    await request(local).delete(INSPECTION).expect(204);
    pass(post('/after', ''), OK);
    const { body: requests } = await request(local).get(REQUESTS);
    expect(requests.map(({ path }: { path: string }) => path)).toEqual(['/during']);
    await request(local).delete(REQUESTS).expect(204);
    expect((await request(local).get(INSPECTION)).body).toMatchObject({ state: 'off', requests: 0, held_bytes: 0 });
  });

  it('begins on an open connection with its next request, and ends with what is open', async () => {
    const { local, pass, upstreamOf } = await setUp({ inspect: false });
    const kept = pass(post('/1', ''), OK);
    await request(local).put(INSPECTION).send({}).expect(200);
    kept?.fromClient(Buffer.from(post('/2', '')));
    kept?.toClient(OK);
    kept?.fromClient(Buffer.from(post('/3', '')));
    await request(local).delete(INSPECTION).expect(204);
    kept?.toClient(OK);
    kept?.fromClient(Buffer.from(post('/4', '')));
    const { body } = await request(local).get(REQUESTS);
    expect(body).toMatchObject([
      { path: '/3', state: 'aborted', status: null, error: 'inspection was switched off meanwhile' },
      { path: '/2', state: 'complete', status: 200, error: null },
    ]);
    expect(upstreamOf()).toBeDefined();
  });

  it('opens a tunnel once more whose connections bypass the agent', async () => {
    const { local, connector, upstreamOf } = await setUp({ inspect: false });
    // As the SDK does.
    expect(await upstreamOf()?.address()).toBe('http://localhost:8001');
    await request(local).put(INSPECTION).send({}).expect(200);
    expect(connector.requests.length).toBe(2);
    expect(await upstreamOf()?.address()).toMatch(/^unix:/);
    await request(local).put(INSPECTION).send({}).expect(200);
    await request(local).delete(INSPECTION).expect(204);
    await request(local).put(INSPECTION).send({}).expect(200);
    expect(connector.requests.length).toBe(2);
    expect((await request(local).get('/tunnels/cam')).body).toMatchObject({
      status: 'online',
      traffic: { requests: 0 },
    });
  });

  it('answers 400 for other protocols and impossible durations, and 404 for unknown tunnels', async () => {
    const { local } = await setUp();
    await request(local).post('/tunnels').send({ protocol: 'tls', forwards_to: '8443', domain: 'b.localhost' });
    const refused = await request(local).put('/tunnels/b/inspection').send({});
    expect([refused.status, refused.body.error_code]).toEqual([400, 'ERR_AGENT_NOT_INSPECTABLE']);
    for (const duration_seconds of [0, 86_401, 1.5, '900']) {
      expect((await request(local).put(INSPECTION).send({ duration_seconds })).status).toBe(400);
    }
    expect((await request(local).get('/tunnels/x/requests')).status).toBe(404);
  });

  it('ends with the tunnel, and what was captured is forgotten', async () => {
    const { local, pass, inspector } = await setUp();
    pass(post('/a', ''), OK);
    expect(inspector.store.held).toBeGreaterThan(0);
    await request(local).delete('/tunnels/cam').expect(204);
    expect(inspector.store.held).toBe(0);
  });

  it('has the guards of every other path', async () => {
    const { local, remote } = await setUp();
    for (const path of [INSPECTION, REQUESTS, `${REQUESTS}.har`, `${REQUESTS}/1`, `${REQUESTS}/events`]) {
      expect((await request(remote).get(path)).status).toBe(401);
      expect((await request(local).get(path).set('Host', 'evil.example')).status).toBe(403);
      expect((await request(local).get(path).set('Sec-Fetch-Site', 'cross-site')).status).toBe(403);
    }
    expect((await request(remote).get(REQUESTS).auth(TOKEN, { type: 'bearer' })).status).toBe(200);
  });
});

describe('the list of requests', () => {
  it('has what people look for, newest first, and filters it', async () => {
    const { local, pass } = await setUp();
    pass(post('/a?x=1', 'hi'), OK);
    pass('GET /missing HTTP/1.1\r\nHost: cam\r\n\r\n', answer('404 Not Found', ''));
    pass('GET /slow HTTP/1.1\r\n\r\n', '');
    const { body } = await request(local).get(REQUESTS);
    expect(body.map(({ id }: { id: string }) => id)).toEqual(['3', '2', '1']);
    expect(body[2]).toEqual({
      id: '1',
      state: 'complete',
      kind: 'http',
      method: 'POST',
      path: '/a?x=1',
      host: 'cam.localhost:8443',
      status: 200,
      client: '203.0.113.5',
      started_at: expect.stringMatching(/Z$/),
      duration_ms: expect.any(Number),
      request_bytes: 2,
      response_bytes: 2,
      content_type: 'text/plain',
      messages: 0,
      answered_by: null,
      captured: true,
      replay_of: null,
      error: null,
    });
    const ids = async (query: string) =>
      (await request(local).get(`${REQUESTS}?${query}`)).body.map(({ id }: { id: string }) => id);
    expect(await ids('method=get')).toEqual(['3', '2']);
    expect(await ids('path=MISS')).toEqual(['2']);
    expect(await ids('status=4xx')).toEqual(['2']);
    expect(await ids('status=200')).toEqual(['1']);
    expect(await ids('status=none')).toEqual(['3']);
    expect(await ids('limit=1')).toEqual(['3']);
    expect(await ids('before=3&limit=1')).toEqual(['2']);
    expect(await ids('min_duration_ms=100000')).toEqual([]);
    expect((await request(local).get(`${REQUESTS}?status=9xx`)).status).toBe(400);
    expect((await request(local).get(`${REQUESTS}?typo=1`)).status).toBe(400);
  });
});

describe('a request', () => {
  it('has headers and decoded bodies of both sides, and timing', async () => {
    const { local, pass } = await setUp();
    pass(
      post('/a', '{"on": true}', 'Content-Type: application/json\r\n'),
      answer('200 Fine', gzipSync('{"ok": 1}'), 'Content-Type: application/json\r\nContent-Encoding: gzip\r\n'),
    );
    const { body } = await request(local).get(`${REQUESTS}/1`);
    expect(body).toMatchObject({
      http_version: '1.1',
      masked: false,
      replayable: true,
      request: { body: { text: '{"on": true}', base64: null, bytes: 12, truncated: false } },
      response: {
        status_text: 'Fine',
        body: { text: '{"ok": 1}', content_encoding: 'gzip', decoded_bytes: 9, error: null },
      },
      timing: { sending_ms: expect.any(Number), waiting_ms: expect.any(Number), receiving_ms: expect.any(Number) },
    });
    expect(body.request.headers).toContainEqual({ name: 'Content-Type', value: 'application/json' });
    const missing = await request(local).get(`${REQUESTS}/99`);
    expect([missing.status, missing.body.error_code]).toEqual([404, 'ERR_AGENT_REQUEST_NOT_FOUND']);
  });

  it('counts a decoded body as it was sent, not as it is masked', async () => {
    const { local, pass } = await setUp();
    const secret = '{"password": "hunter2hunter2hunter2"}';
    pass(post('/a', secret, 'Content-Type: application/json\r\n'), answer('200 OK', ''));
    const { body } = await request(local).get(`${REQUESTS}/1`);
    expect(body.request.body.text).not.toContain('hunter2');
    expect(body.request.body).toMatchObject({ bytes: secret.length, decoded_bytes: secret.length });
  });

  it.each([
    ['br', brotliCompressSync('text'), { text: 'text', error: null }],
    ['gzip, br', brotliCompressSync(gzipSync('text')), { text: 'text', error: null }],
    ['gzip', Buffer.from('no gzip'), { text: 'no gzip', error: 'incorrect header check' }],
    ['gzip, gzip, gzip', gzipSync('x'), { text: '[masked]', error: 'more than two content encodings' }],
    ['magic', Buffer.from('x'), { text: 'x', error: 'unknown content encoding magic' }],
    ['gzip', gzipSync(Buffer.alloc(50_000_000)), { decoded_bytes: 1_048_576, truncated: true }],
    [
      'gzip',
      gzipSync('cut '.repeat(9_000)).subarray(0, 60),
      { truncated: true, text: expect.stringMatching(/^cut cut/) },
    ],
    ['identity', Buffer.from([0x89, 0x50, 0x00, 0xff]), { text: null, base64: 'iVAA/w==' }],
  ])('with a body in %s is shown decoded', async (encoding, bytes, expected) => {
    const { local, pass } = await setUp();
    pass(post('/a', ''), answer('200 OK', bytes, `Content-Encoding: ${encoding}\r\n`));
    expect((await request(local).get(`${REQUESTS}/1`)).body.response.body).toMatchObject(expected);
  });

  it('has its secrets masked in every answer, unless they are asked for', async () => {
    const { local, pass } = await setUp();
    const secret = 'hunter2';
    pass(
      post('/login?token=hunter2', '{"password":"hunter2"}', 'Authorization: Bearer hunter2\r\nCookie: a=hunter2\r\n'),
      answer(
        '200 OK',
        '{"access_token":"hunter2"}',
        'Set-Cookie: a=hunter2; HttpOnly\r\nContent-Type: application/json\r\n',
      ),
    );
    const paths = ['', '/1', '/1/request/body', '/1/response/body', '.har'];
    for (const path of paths) {
      const [status, masked] = await read(request(local).get(`${REQUESTS}${path}`));
      expect([path, status, masked.includes(secret), masked.includes('[masked]')]).toEqual([path, 200, false, true]);
      const [, revealed] = await read(request(local).get(`${REQUESTS}${path}?reveal=true`));
      expect([path, revealed.includes(secret), revealed.includes('[masked]')]).toEqual([path, true, false]);
    }
    expect((await request(local).get(`${REQUESTS}/1`)).body.masked).toBe(true);
  });

  it('has bodies that browsers do not run', async () => {
    const { local, pass } = await setUp();
    pass(post('/a', ''), answer('200 OK', '<script>alert(1)</script>', 'Content-Type: text/html\r\n'));
    pass(post('/b', ''), answer('200 OK', Buffer.from([0x89, 0x50, 0x4e, 0x47]), 'Content-Type: image/png\r\n'));
    pass(post('/c', ''), answer('200 OK', '<svg/>', 'Content-Type: image/svg+xml\r\n'));
    const types = await Promise.all(
      ['1', '2', '3'].map(async (id) => {
        const { headers } = await request(local).get(`${REQUESTS}/${id}/response/body`);
        expect(headers).toMatchObject({
          'content-security-policy': "default-src 'none'; sandbox",
          'x-content-type-options': 'nosniff',
          'content-disposition': expect.stringMatching(/^attachment/),
        });
        return headers['content-type'];
      }),
    );
    expect(types).toEqual(['application/octet-stream', 'image/png', 'application/octet-stream']);
    expect((await request(local).get(`${REQUESTS}/1/request/body`)).status).toBe(404);
  });

  it('has the messages of server-sent events, after a number', async () => {
    const { local, pass } = await setUp();
    pass(
      'GET /e HTTP/1.1\r\n\r\n',
      'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {"token":"x"}\n\ndata: two\n\n',
    );
    const { body } = await request(local).get(`${REQUESTS}/1/messages?after=1`);
    expect(body).toMatchObject([{ number: 2, from: 'upstream', type: 'event', event: 'message', text: 'two' }]);
    const all = await request(local).get(`${REQUESTS}/1/messages`);
    expect(all.body[0].text).toBe('{"token":"[masked]"}');
  });
});

it('the answers are as the OpenAPI document describes them', async () => {
  const { local, pass } = await setUp();
  pass(post('/a', 'hi'), OK);
  const check = new OpenApiCheck((await request(local).get('/openapi.json')).body);
  for (const path of [INSPECTION, REQUESTS, `${REQUESTS}/1`, `${REQUESTS}/1/messages`, `${REQUESTS}.har`]) {
    const { status, text } = await request(local).get(path);
    expect([path, status, check.problems('GET', path, status, text)]).toEqual([path, 200, []]);
  }
});

describe('the HAR', () => {
  it('has the shape that browsers import', async () => {
    const { local, pass } = await setUp();
    pass(
      post('/a?x=1&y=%20', 'q=1', 'Cookie: a=1; b=2\r\nContent-Type: text/plain\r\n'),
      answer('302 Found', '', 'Location: /b\r\nSet-Cookie: s=1; Path=/\r\n'),
    );
    pass(
      'GET /img HTTP/1.1\r\nHost: cam\r\n\r\n',
      answer('200 OK', Buffer.from([0xff, 0xd8, 0]), 'Content-Type: image/jpeg\r\n'),
    );
    pass('GET /open HTTP/1.1\r\n\r\n', '');
    const { body, headers } = await request(local).get(`${REQUESTS}.har?reveal=true`);
    expect(headers['cache-control']).toBe('no-store');
    expect(headers['content-disposition']).toBe('attachment; filename="cam.localhost.har"');
    expect(body.log).toMatchObject({ version: '1.2', creator: { name: 'device-agent', version: '1.2.3' } });
    const [first, image, open] = body.log.entries;
    expect(first).toMatchObject({
      startedDateTime: expect.stringMatching(/Z$/),
      time: expect.any(Number),
      request: {
        method: 'POST',
        url: 'https://cam.localhost:8443/a?x=1&y=%20',
        httpVersion: 'HTTP/1.1',
        cookies: [
          { name: 'a', value: '1' },
          { name: 'b', value: '2' },
        ],
        queryString: [
          { name: 'x', value: '1' },
          { name: 'y', value: ' ' },
        ],
        postData: { mimeType: 'text/plain', text: 'q=1' },
        headersSize: expect.any(Number),
        bodySize: 3,
      },
      response: {
        status: 302,
        statusText: 'Found',
        redirectURL: '/b',
        cookies: [{ name: 's', value: '1' }],
        content: { size: 0, mimeType: 'x-unknown' },
      },
      cache: {},
      timings: { send: expect.any(Number), wait: expect.any(Number), receive: expect.any(Number) },
    });
    expect(image.response.content).toEqual({ size: 3, mimeType: 'image/jpeg', text: '/9gA', encoding: 'base64' });
    expect(open.response).toMatchObject({ status: 0, content: { size: 0 }, headersSize: -1, bodySize: -1 });
    expect((await request(local).get(`${REQUESTS}.har?status=302`)).body.log.entries.length).toBe(1);
  });
});

describe('replay', () => {
  async function withUpstream() {
    const service = await startHttpService(({ method, url, body }, res) => void res.end(`${method} ${url} ${body}`));
    onTestFinished(() => service.close());
    return { service, ...(await setUp({ forwards_to: service.url })) };
  }

  it('sends a request to the upstream again, which is captured as a new one', async () => {
    const { local, pass, service } = await withUpstream();
    pass(
      post('/a?token=abc', '{"a":1}', 'Authorization: Bearer abc\r\nTransfer-Encoding: chunked\r\n').replace(
        /Content-Length.*\r\n\r\n.*/s,
        '\r\n7\r\n{"a":1}\r\n0\r\n\r\n',
      ),
      OK,
    );
    const { status, body } = await request(local).post(`${REQUESTS}/1/replay`).send({});
    expect(status).toBe(200);
    expect(body).toMatchObject({ id: '2', replay_of: '1', state: 'complete', status: 200, path: '/a?token=[masked]' });
    const revealed = await request(local).get(`${REQUESTS}/2?reveal=true`);
    expect(revealed.headers['cache-control']).toBe('no-store');
    expect(revealed.body.response.body.text).toBe('POST /a?token=abc {"a":1}');
    expect(service.received[0]?.headers).toMatchObject({
      authorization: 'Bearer abc',
      'content-length': '7',
      host: 'cam.localhost:8443',
    });
    expect(service.received[0]?.headers['transfer-encoding']).toBeUndefined();
  });

  it('sends it edited; what is still masked stands for what was captured', async () => {
    const { local, pass, service } = await withUpstream();
    pass(post('/a?token=abc', '{"password":"abc"}', 'Content-Type: application/json\r\nX-Api-Key: abc\r\n'), OK);
    const detail = (await request(local).get(`${REQUESTS}/1`)).body;
    const edited = {
      method: 'PUT',
      path: detail.path,
      headers: [...detail.request.headers, { name: 'X-New', value: 'ü' }],
      body: { text: detail.request.body.text },
    };
    await request(local).post(`${REQUESTS}/1/replay`).send(edited).expect(200);
    expect(service.received[0]).toMatchObject({ method: 'PUT', url: '/a?token=abc', body: '{"password":"abc"}' });
    expect(service.received[0]?.headers).toMatchObject({ 'x-api-key': 'abc', 'content-type': 'application/json' });
    await request(local)
      .post(`${REQUESTS}/1/replay`)
      .send({ method: 'GET', path: '/b', headers: [], body: null })
      .expect(200);
    expect(service.received[1]).toMatchObject({ method: 'GET', url: '/b', body: '' });
    expect(service.received[1]?.headers).toEqual({ host: 'cam.localhost:8443', connection: 'close' });
  });

  it.each([
    { path: '/a b' },
    { path: 'http://evil.example/' },
    { method: 'GET /x HTTP/1.1\r\n' },
    { headers: [{ name: 'A', value: 'b\r\nInjected: 1' }] },
    { headers: [{ name: 'A: b\r\nC', value: 'd' }] },
    { body: { base64: '%%%' } },
    { typo: 1 },
  ])('refuses %j', async (change) => {
    const { local, pass, service } = await withUpstream();
    pass(post('/a', ''), OK);
    expect((await request(local).post(`${REQUESTS}/1/replay`).send(change)).status).toBe(400);
    expect(service.received).toEqual([]);
  });

  it('needs a body when that was not captured whole, and refuses upgraded connections', async () => {
    const { local, pass } = await withUpstream();
    pass(post('/big', 'x'.repeat(300_000)), OK);
    pass(
      'GET /ws HTTP/1.1\r\nUpgrade: websocket\r\n\r\n',
      'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n',
    );
    const cut = await request(local).post(`${REQUESTS}/1/replay`).send({});
    expect([cut.status, cut.body.error_code]).toEqual([409, 'ERR_AGENT_NOT_REPLAYABLE']);
    expect((await request(local).get(`${REQUESTS}/1`)).body.replayable).toBe(false);
    await request(local)
      .post(`${REQUESTS}/1/replay`)
      .send({ body: { text: 'short' } })
      .expect(200);
    expect((await request(local).post(`${REQUESTS}/2/replay`).send({})).status).toBe(409);
  });

  it('obeys the rules for upstreams as they are now', async () => {
    const { local, pass, service, guard } = await withUpstream();
    pass(post('/a', ''), OK);
    guard.protectOwnPorts(new Map([[Number(new URL(service.url).port), 'an own port']]));
    const { status, body } = await request(local).post(`${REQUESTS}/1/replay`).send({});
    expect([status, body.error_code]).toEqual([400, 'ERR_AGENT_UPSTREAM_NOT_ALLOWED']);
    expect(service.received).toEqual([]);
    expect((await request(local).get(REQUESTS)).body.length).toBe(1);
  });

  it('tells when the upstream refuses, or breaks off', async () => {
    const refused = await setUp({ forwards_to: String(await freePort()) });
    refused.pass(post('/a', ''), OK);
    const answered = await request(refused.local).post(`${REQUESTS}/1/replay`).send({});
    expect(answered.body).toMatchObject({
      state: 'failed',
      status: null,
      error: expect.stringContaining('ECONNREFUSED'),
    });

    const port = await serving(createTcpServer((socket) => void socket.once('data', () => socket.destroy())));
    const broken = await setUp({ forwards_to: String(port) });
    broken.pass(post('/a', ''), OK);
    const { body } = await request(broken.local).post(`${REQUESTS}/1/replay`).send({});
    expect(body).toMatchObject({ state: 'aborted', status: null });
  });
});

/** Status and text of any answer, downloads included. */
async function read(call: request.Test): Promise<[status: number, text: string]> {
  const { status, body, text } = await call;
  return [status, Buffer.isBuffer(body) ? body.toString() : text];
}
