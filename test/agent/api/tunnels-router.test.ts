import request from 'supertest';
import { describe, expect, it } from 'vitest';
import { DurableFile } from '../../../src/agent/tunnels/durable-file.ts';
import { tunnelsCodec } from '../../../src/agent/tunnels/tunnel-store.ts';
import { ApiError } from '../../../src/lib/errors.ts';
import { setUpApi } from '../../support/api-set-up.ts';
import { PowerCutFiles } from '../../support/power-cut-files.ts';
import { silentLog } from '../../support/silent-log.ts';

const device342 = { protocol: 'http', forwards_to: '8001', domain: 'device342.localhost' };
const policy = { outbound: [{ expressions: [], actions: [{ type: 'add-headers', config: { headers: { a: 'b' } } }] }] };

describe('POST /tunnels', () => {
  it('answers with exactly five members, and the policy as it was sent', async () => {
    const { local } = await setUpApi();
    const first = await request(local).post('/tunnels').send(device342);
    expect(first.status).toBe(200);
    expect(first.text).toBe(
      '{"url":"https://device342.localhost:8443","protocol":"http","forwards_to":"localhost:8001",' +
        '"domain":"device342.localhost","policy":null}',
    );
    const second = await request(local)
      .post('/tunnels')
      .send({ ...device342, domain: 'B.localhost.', policy });
    expect(second.body).toMatchObject({ domain: 'b.localhost', policy });
    const third = await request(local).post('/tunnels').send({ forwards_to: 8001, domain: 'c.localhost' });
    expect(third.body).toMatchObject({ protocol: 'http', domain: 'c.localhost' });
  });

  it('lists all problems of a body at once, by place', async () => {
    const { local } = await setUpApi();
    const body = {
      protocol: 'udp',
      forwards_to: 'http://user@host',
      domain: '*.example.com',
      policy: { inbound: [{ actions: [] }], typo: [] },
      forward_to: 1,
    };
    const res = await request(local).post('/tunnels').send(body);
    expect(res.status).toBe(400);
    expect(res.body).toMatchObject({ error_code: 'ERR_AGENT_INVALID_REQUEST', status_code: 400 });
    expect(Object.keys(res.body.details).toSorted()).toEqual([
      'domain',
      'forward_to',
      'forwards_to',
      'policy.inbound[0].actions',
      'policy.typo',
      'protocol',
    ]);
  });

  it.each([
    ['an empty list', '[]', 'ERR_AGENT_INVALID_REQUEST'],
    ['no object', '"text"', 'ERR_AGENT_INVALID_REQUEST'],
    ['null', 'null', 'ERR_AGENT_INVALID_REQUEST'],
    ['nothing', '', 'ERR_AGENT_MALFORMED_JSON'],
    ['no JSON', '{"protocol":\n  http}', 'ERR_AGENT_MALFORMED_JSON'],
    ['an abyss', '{"policy":'.repeat(10_000), 'ERR_AGENT_MALFORMED_JSON'],
  ])('refuses %s', async (_, body, code) => {
    const { local } = await setUpApi();
    const res = await request(local).post('/tunnels').type('application/json').send(body);
    expect([res.status, res.body.error_code]).toEqual([400, code]);
  });

  it.each(['', '"policy":{"inbound":[],"outbound":[],"__proto__":{}},'])(
    'names a member called __proto__ like any other, after {%s',
    async (members) => {
      const { local } = await setUpApi();
      const text = `{"protocol":"http","forwards_to":8001,${members}${members === '' ? '"__proto__":{}' : '"x":1'}}`;
      const res = await request(local).post('/tunnels').type('application/json').send(text);
      expect([res.status, res.body.msg]).toEqual([
        400,
        expect.stringMatching(/__proto__: unknown member "__proto__"; supported: /),
      ]);
      expect(res.text).toMatch(/"details":\{[^}]*__proto__":"unknown member/);
    },
  );

  it('names the place of a JSON syntax error', async () => {
    const { local } = await setUpApi();
    const res = await request(local).post('/tunnels').type('application/json').send('{"protocol":\n  http}');
    expect(res.body.details).toEqual({ 'line 2, column 3': 'expected a value' });
  });

  it.each([
    [{ ...device342, domain: 'host' }, 'tcp', 'domain'],
    [{ ...device342, domain: 'host:70000' }, 'tcp', 'domain'],
    [{ ...device342, domain: 'host:80' }, 'http', 'domain'],
    [{ ...device342, domain: '10.0.0.1' }, 'http', 'domain'],
    [{ ...device342, domain: 'a..b' }, 'http', 'domain'],
    [{ ...device342, domain: `${'a'.repeat(64)}.b` }, 'http', 'domain'],
    [{ ...device342, domain: 'under_score.b' }, 'http', 'domain'],
    [{ ...device342, domain: '' }, 'http', 'domain'],
    [{ ...device342, forwards_to: 'https://h:1' }, 'tls', 'forwards_to'],
    [{ ...device342, forwards_to: '169.254.169.254:80' }, 'http', 'forwards_to'],
    [{ ...device342, policy: { outbound: policy.outbound } }, 'tls', 'outbound'],
  ])('refuses %j for %s, naming %s', async (body, protocol, place) => {
    const { local } = await setUpApi();
    const res = await request(local)
      .post('/tunnels')
      .send({ ...body, protocol });
    expect([res.status, Object.keys(res.body.details)]).toEqual([400, [place]]);
  });

  it.each(['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x', 'application/jsonp'])(
    'refuses the content type %s, which a form on any web site could send',
    async (type) => {
      const { local } = await setUpApi();
      const res = await request(local).post('/tunnels').set('Content-Type', type).send(JSON.stringify(device342));
      expect([res.status, res.body.error_code]).toEqual([415, 'ERR_AGENT_UNSUPPORTED_MEDIA_TYPE']);
    },
  );

  it.each([
    { 'Content-Type': 'application/json; charset=utf-16' },
    { 'Content-Type': 'application/json', 'Content-Encoding': 'gzip' },
  ])('answers 415 for a body with %j', async (headers) => {
    const { local } = await setUpApi();
    const res = await request(local).post('/tunnels').set(headers).send('{}');
    expect([res.status, res.body.error_code]).toEqual([415, 'ERR_AGENT_UNSUPPORTED_MEDIA_TYPE']);
  });

  it('refuses a body that is not UTF-8', async () => {
    const { local } = await setUpApi();
    const text = JSON.stringify({
      ...device342,
      policy: { inbound: [{ name: 'caf\u00e9', actions: [{ type: 'deny' }] }] },
    });
    const post = (encoding: 'latin1' | 'utf8') => {
      const req = request(local).post('/tunnels').type('application/json');
      req.write(Buffer.from(text, encoding));
      return req;
    };
    const refused = await post('latin1');
    expect([refused.status, refused.body.error_code]).toEqual([400, 'ERR_AGENT_MALFORMED_JSON']);
    expect((await post('utf8')).body.policy.inbound[0].name).toBe('caf\u00e9');
  });

  it.each(['application/json;charset=UTF-8', 'application/json; charset="utf-8"'])(
    'accepts the content type %s',
    async (type) => {
      const { local } = await setUpApi();
      const body = JSON.stringify({ protocol: 'http', forwards_to: '8001', domain: 'device342.localhost' });
      expect((await request(local).post('/tunnels').set('Content-Type', type).send(body)).status).toBe(200);
    },
  );

  it('refuses bodies over 256 KiB and accepts one of exactly that size', async () => {
    const { local } = await setUpApi();
    const body = (length: number) => JSON.stringify(device342).padEnd(length);
    const post = (text: string) => request(local).post('/tunnels').type('application/json').send(text);
    expect((await post(body(256 * 1024 + 1))).body).toMatchObject({ error_code: 'ERR_AGENT_BODY_TOO_LARGE' });
    expect((await post(body(256 * 1024))).status).toBe(200);
  });

  it('answers 409 to one of two concurrent requests for a domain', async () => {
    const { local } = await setUpApi();
    const post = () => request(local).post('/tunnels').send(device342);
    const answers = await Promise.all([post(), post()]);
    expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 409]);
    expect((await request(local).get('/tunnels')).body).toHaveLength(1);
  });

  it('passes on the gateway’s error, and answers 503 with Retry-After without a session', async () => {
    const { local, connector } = await setUpApi();
    connector.beforeOpen = async () => {
      throw new ApiError(409, 'ERR_NGROK_334', 'online elsewhere');
    };
    const elsewhere = await request(local).post('/tunnels').send(device342);
    expect(elsewhere.body).toEqual({
      error_code: 'ERR_NGROK_334',
      status_code: 409,
      msg: 'online elsewhere',
      details: {},
    });
    connector.goOffline();
    const offline = await request(local).post('/tunnels').send(device342);
    expect([offline.status, offline.headers['retry-after']]).toEqual([503, '5']);
  });

  it('closes the endpoint when the tunnel cannot be written to the disk', async () => {
    const files = new PowerCutFiles();
    const adapter = new DurableFile({ path: '/tunnels.json', codec: tunnelsCodec, log: silentLog, files });
    const { local, connector } = await setUpApi({ adapter });
    files.failure = { operation: 'sync', code: 'ENOSPC' };
    const res = await request(local).post('/tunnels').send(device342);
    expect([res.status, res.body.error_code]).toEqual([500, 'ERR_AGENT_NOT_PERSISTED']);
    expect(connector.bound.size).toBe(0);
  });
});

describe('GET /tunnels', () => {
  it('lists tunnels in order of creation with the policy in force', async () => {
    const defaultPolicies = { inbound: [], outbound: policy.outbound as [] };
    const { local } = await setUpApi({ defaultPolicies });
    expect((await request(local).get('/tunnels')).text).toBe('[]');
    await request(local).post('/tunnels').send(device342);
    await request(local)
      .post('/tunnels')
      .send({ ...device342, domain: 'a.localhost', policy: { inbound: [] } });
    expect((await request(local).get('/tunnels')).body).toEqual([
      {
        url: 'https://device342.localhost:8443',
        url_part: 'device342',
        protocol: 'http',
        forwards_to: 'localhost:8001',
        domain: 'device342.localhost',
        policy: JSON.stringify(defaultPolicies),
      },
      expect.objectContaining({ url_part: 'a', policy: '{"inbound":[]}' }),
    ]);
  });
});

describe('query parameters', () => {
  it('GET /tunnels?protocol lists the tunnels of that protocol only', async () => {
    const { local } = await setUpApi();
    await request(local).post('/tunnels').send(device342);
    await request(local).post('/tunnels').send({ protocol: 'tls', forwards_to: '8001', domain: 'tls.localhost' });
    const domains = async (query: string) =>
      (await request(local).get(`/tunnels${query}`)).body.map(({ domain }: { domain: string }) => domain);
    expect(await domains('?protocol=http')).toEqual(['device342.localhost']);
    expect(await domains('?protocol=tls')).toEqual(['tls.localhost']);
    expect(await domains('?protocol=tcp')).toEqual([]);
    expect(await domains('')).toHaveLength(2);
  });

  it.each([
    ['GET', '/tunnels?protocol=udp', 'protocol', /one of "http", "tcp", "tls"/],
    ['GET', '/tunnels?protocol=http&protocol=tcp', 'protocol', /one of/],
    ['GET', '/tunnels?limit=5', 'limit', /^unknown query parameter; supported: protocol$/],
    ['POST', '/tunnels?domain=a', 'domain', /^unknown query parameter; supported: none$/],
    ['GET', '/tunnels/device342?verbose', 'verbose', /unknown/],
    ['DELETE', '/tunnels/device342?force=1', 'force', /unknown/],
    ['HEAD', '/healthz?__proto__=1', '__proto__', /unknown/],
    ['GET', '/status?a=1', 'a', /unknown/],
    ['GET', '/metrics?name[]=x', 'name[]', /unknown/],
    ['GET', '/openapi.json?format=yaml', 'format', /unknown/],
  ])('%s %s answers 400 that names the parameter', async (method, path, name, problem) => {
    const { local, tunnels } = await setUpApi();
    await request(local).post('/tunnels').send(device342);
    const res = await request(local)[method.toLowerCase() as 'get'](path);
    expect(res.status).toBe(400);
    if (method !== 'HEAD') {
      expect(res.body).toMatchObject({ error_code: 'ERR_AGENT_INVALID_REQUEST' });
      expect(Object.entries(res.body.details)).toEqual([[name, expect.stringMatching(problem)]]);
    }
    expect(tunnels.list()).toHaveLength(1);
  });
});

describe('GET and DELETE /tunnels/{url_part}', () => {
  it('GET answers with the status of the tunnel', async () => {
    const { local } = await setUpApi();
    await request(local).post('/tunnels').send(device342);
    const res = await request(local).get(`/tunnels/${encodeURIComponent('https://device342.localhost:8443')}`);
    expect(res.body).toEqual({
      url: 'https://device342.localhost:8443',
      url_part: 'device342',
      protocol: 'http',
      forwards_to: 'localhost:8001',
      domain: 'device342.localhost',
      policy: '{"inbound":[],"outbound":[]}',
      status: 'online',
      since: expect.stringMatching(/^\d{4}-.*Z$/),
      last_error: null,
      created_at: expect.stringMatching(/^\d{4}-.*Z$/),
    });
  });

  it('DELETE answers 204 once the endpoint is closed', async () => {
    const { local, connector } = await setUpApi();
    await request(local).post('/tunnels').send(device342);
    const res = await request(local).delete('/tunnels/device342');
    expect([res.status, res.text, connector.bound.size]).toEqual([204, '', 0]);
    expect((await request(local).delete('/tunnels/device342')).body).toMatchObject({
      error_code: 'ERR_AGENT_TUNNEL_NOT_FOUND',
      status_code: 404,
    });
  });

  it('DELETE answers 409 when two tunnels match, and deletes neither', async () => {
    const { local, connector } = await setUpApi();
    for (const domain of ['cam.a.localhost', 'cam.b.localhost']) {
      await request(local)
        .post('/tunnels')
        .send({ ...device342, domain });
    }
    const res = await request(local).delete('/tunnels/cam');
    expect(res.status).toBe(409);
    expect(res.body.msg).toContain('https://cam.a.localhost:8443 and https://cam.b.localhost:8443');
    expect(connector.bound.size).toBe(2);
    expect((await request(local).delete('/tunnels/cam.b.localhost')).status).toBe(204);
  });
});

describe('other requests', () => {
  it.each([
    ['PUT', '/tunnels', 405, 'GET, HEAD, POST'],
    ['OPTIONS', '/tunnels', 405, 'GET, HEAD, POST'],
    ['POST', '/tunnels/a', 405, 'GET, HEAD, DELETE'],
    ['DELETE', '/status', 405, 'GET, HEAD'],
    ['GET', '/', 404, undefined],
    ['GET', '/tunnels/a/b', 404, undefined],
    ['GET', '/tunnels/%zz', 400, undefined],
  ])('%s %s answers %i with an error body', async (method, path, status, allow) => {
    const { local } = await setUpApi();
    const res = await request(local)[method.toLowerCase() as 'get'](path);
    expect([res.status, res.headers.allow]).toEqual([status, allow]);
    expect(res.body).toEqual({
      error_code: expect.stringMatching(/^ERR_AGENT_/),
      status_code: status,
      msg: expect.any(String),
      details: {},
    });
  });

  it('an unexpected error answers 500 without details', async () => {
    const { local, tunnels } = await setUpApi();
    tunnels.list = () => {
      throw new Error('a secret');
    };
    const res = await request(local).get('/tunnels');
    expect(res.body).toMatchObject({ error_code: 'ERR_AGENT_INTERNAL', status_code: 500 });
    expect(res.text).not.toContain('secret');
    expect(res.headers['x-powered-by']).toBeUndefined();
  });
});
