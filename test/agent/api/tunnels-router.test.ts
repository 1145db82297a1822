import request from 'supertest';
import { describe, expect, it, vi } from 'vitest';
import { tunnelsCodec } from '../../../src/agent/tunnels/tunnels-file.ts';
import { ApiError } from '../../../src/lib/errors.ts';
import { DurableFile } from '../../../src/lib/files/durable-file.ts';
import { setUpApi } from '../../support/api-set-up.ts';
import { PowerCutFiles } from '../../support/power-cut-files.ts';
import { recordingLog, silentLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const device342 = { protocol: 'http', forwards_to: '8001', domain: 'device342.localhost' };
const policy = { outbound: [{ expressions: [], actions: [{ type: 'add-headers', config: { headers: { a: 'b' } } }] }] };

/** What is reported of a tunnel that was just created. */
const FRESH = {
  status: 'online',
  since: expect.stringMatching(/^\d{4}-.*Z$/),
  last_error: null,
  upstream: { state: 'unknown', since: null, checked_at: null, reason: null },
  traffic: { connections: 0, requests: 0, bytes_in: 0, bytes_out: 0, last_at: null },
};

describe('POST /tunnels', () => {
  it('answers with exactly five members, and the policy as it was sent', async () => {
    const { local } = await setUpApi();
    const first = await request(local).post('/tunnels').send(device342);
    expect(first.status).toBe(200);
    expect(first.text).toBe(
      '{"url":"https://device342.localhost:8443","protocol":"http","forwards_to":"localhost:8001",' +
        '"domain":"device342.localhost","policy":null}\n',
    );
    const second = await request(local)
      .post('/tunnels')
      .send({ ...device342, domain: 'B.localhost.', policy });
    expect(second.body).toMatchObject({ domain: 'b.localhost', policy });
    const third = await request(local).post('/tunnels').send({ forwards_to: 8001, domain: 'c.localhost' });
    expect(third.body).toMatchObject({ protocol: 'http', domain: 'c.localhost' });
  });

  const options = {
    binding: 'internal',
    app_protocol: 'http1',
    pooling: true,
    metadata: 'hall 3',
    proxy_proto: '2',
    max_connections: 1,
    host_header: 'rewrite',
    rewrite_redirects: false,
    response_timeout: '10m',
  };

  it('keeps and shows the options of an endpoint that were sent', async () => {
    const folder = temporaryFolder();
    const { local, tunnels } = await setUpApi({ folder });
    const sent = { ...device342, domain: 'camera.internal', ...options, proxy_proto: 2 };
    expect((await request(local).post('/tunnels').send(sent)).body).toMatchObject({ ...options, policy: null });
    await request(local)
      .post('/tunnels')
      .send({ ...device342, binding: null, app_protocol: null, pooling: false, metadata: null, proxy_proto: null });
    await tunnels.stop();
    const { local: again, connector } = await setUpApi({ folder });
    const [camera, plain] = (await request(again).get('/tunnels')).body;
    expect(camera).toMatchObject(options);
    expect(Object.keys(plain).filter((member) => member in options)).toEqual([]);
    await vi.waitFor(() => expect(connector.requests.map((each) => each.options)).toEqual([options, {}]));
  });

  it.each([
    [{ binding: 'kubernetes' }, 'binding', 'must be public or internal'],
    [{ binding: 'internal' }, 'domain', 'with the binding internal, a domain below .internal is needed'],
    [{ binding: 'internal', domain: null }, 'domain', 'with the binding internal, a domain below .internal is needed'],
    [{ app_protocol: 'http3' }, 'app_protocol', 'must be http1 or http2'],
    [{ app_protocol: 'http2', protocol: 'tls' }, 'app_protocol', 'only http tunnels support it: leave it out'],
    [{ proxy_proto: '3' }, 'proxy_proto', 'must be 1 or 2'],
    [{ proxy_proto: '1', forwards_to: 'https://[::1]' }, 'proxy_proto', 'not supported with https://'],
    [{ pooling: 'yes' }, 'pooling', 'must be true or false'],
    [{ max_connections: 0 }, 'max_connections', 'must be from 1 to 1000'],
    [{ max_connections: 1, protocol: 'tls' }, 'max_connections', 'only http tunnels support it: leave it out'],
    [{ host_header: 'a b' }, 'host_header', 'must be rewrite or a hostname'],
    [{ rewrite_redirects: 'no' }, 'rewrite_redirects', 'must be true or false'],
    [{ response_timeout: 60 }, 'response_timeout', 'must be a duration such as 90s, 10m or 1h'],
    [{ response_timeout: '2d' }, 'response_timeout', 'must be a duration such as 90s, 10m or 1h'],
    [{ response_timeout: '25h' }, 'response_timeout', 'must be between 1s and 24h'],
    [{ upstream_tls_verify: 0 }, 'upstream_tls_verify', 'must be true or false'],
    [{ upstream_tls_ca_file: 'ca.pem' }, 'upstream_tls_ca_file', 'must be an absolute path'],
    [{ upstream_tls_ca_file: '/no/ca.pem', forwards_to: 'https://[::1]' }, 'upstream_tls_ca_file', 'ENOENT'],
    [{ upstream_tls_server_name: 'a b' }, 'upstream_tls_server_name', 'must be a hostname or an IP address'],
    [{ upstream_tls_min_version: '0.9' }, 'upstream_tls_min_version', 'must be one of 1.0, 1.1, 1.2, 1.3'],
    [{ upstream_tls_verify: false }, 'upstream_tls_verify', 'only upstreams with https:// support it'],
    [{ upstream_tls_verify: false, protocol: 'tls' }, 'upstream_tls_verify', 'only http tunnels support it'],
    [{ metadata: 'é'.repeat(2049) }, 'metadata', 'is longer than 4096 bytes'],
    [{ metadata: {} }, 'metadata', 'must be text'],
  ])('refuses %j', async (members, member, problem) => {
    const { local } = await setUpApi();
    const res = await request(local)
      .post('/tunnels')
      .send({ ...device342, ...members });
    expect([res.status, res.body.details]).toEqual([400, { [member]: expect.stringContaining(problem) }]);
  });

  it('refuses to change the upstream of a tunnel with PROXY headers to https', async () => {
    const { local } = await setUpApi();
    await request(local)
      .post('/tunnels')
      .send({ ...device342, proxy_proto: '1' });
    const res = await request(local).patch('/tunnels/device342').send({ forwards_to: 'https://127.0.0.1' });
    expect([res.status, Object.keys(res.body.details)]).toEqual([400, ['proxy_proto']]);
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
    ['https://foo.localhost', 'http', 'a URL is not a hostname: leave out https:// and give foo.localhost'],
    ['tcp://foo.localhost:1', 'tcp', 'a URL is not a hostname: leave out tcp:// and give foo.localhost'],
    ['32501', 'tcp', 'a port alone is no domain: for tcp, give host:port or no domain'],
    ['10.0.0.1', 'http', 'IP addresses are not supported: use a hostname'],
  ])('says what is wrong with the domain %s', async (domain, protocol, problem) => {
    const { local } = await setUpApi();
    const { body } = await request(local).post('/tunnels').send({ forwards_to: 8001, protocol, domain });
    expect(body.details.domain.split('; ')[0]).toBe(problem);
  });

  it('reports each unknown member with its own name only', async () => {
    const { local } = await setUpApi();
    const res = await request(local)
      .post('/tunnels')
      .send({ ...device342, domian: 'x', protcol: 'http' });
    const supported =
      'supported: protocol, forwards_to, domain, policy, binding, app_protocol, pooling, metadata, proxy_proto, max_connections, host_header, rewrite_redirects, response_timeout, upstream_tls_verify, upstream_tls_ca_file, upstream_tls_server_name, upstream_tls_min_version, bandwidth';
    expect(res.body.details).toEqual({
      domian: `unknown member "domian"; ${supported}`,
      protcol: `unknown member "protcol"; ${supported}`,
    });
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
    const { log, lines } = recordingLog();
    const { local, connector } = await setUpApi({ adapter }, { log });
    files.failure = { operation: 'sync', code: 'ENOSPC' };
    const res = await request(local).post('/tunnels').send(device342);
    expect([res.status, res.body.error_code]).toEqual([500, 'ERR_AGENT_NOT_PERSISTED']);
    expect(connector.bound.size).toBe(0);
    const { storage } = (await request(local).get('/status')).body;
    expect(storage.last_error).toEqual({ code: 'ERR_AGENT_NOT_PERSISTED', message: res.body.msg });
    // One line that says what to do, without a stack trace.
    const logged = lines.filter(({ msg }) => msg === 'API request failed');
    expect(logged).toMatchObject([{ path: '/tunnels', reason: expect.stringContaining('the disk is full') }]);
    expect(JSON.stringify(logged)).not.toContain('.ts:');
    files.failure = null;
    await request(local).post('/tunnels').send(device342).expect(200);
    expect((await request(local).get('/status')).body.storage).toEqual({ last_error: null });
  });
});

describe('GET /tunnels', () => {
  it('lists tunnels in order of creation with the policy in force', async () => {
    const defaultPolicies = { inbound: [], outbound: policy.outbound as [] };
    const { local } = await setUpApi({ defaultPolicies });
    expect((await request(local).get('/tunnels')).text).toBe('[]\n');
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
        ...FRESH,
      },
      expect.objectContaining({ url_part: 'a', policy: '{"inbound":[]}' }),
    ]);
  });
});

it('a tunnel whose upstream hangs is degraded, until it has closed the connections that clients have left', async () => {
  const { local, options } = await setUpApi();
  await request(local).post('/tunnels').send({ forwards_to: 'localhost:1', domain: 'hung.localhost' });
  const [view] = options.tunnels.list();
  const health = view && options.tunnels.reports.health(view);
  health?.answered();
  health?.keepsOpen(40);
  const message = 'upstream localhost:1 hangs: 40 connections that clients have left are still open';
  expect((await request(local).get('/tunnels')).body).toMatchObject([
    { status: 'degraded', last_error: { code: null, message }, upstream: { state: 'hangs' } },
  ]);
  health?.keepsOpen(0);
  expect((await request(local).get('/tunnels')).body).toMatchObject([{ status: 'online', last_error: null }]);
});

describe('a tunnel whose upstream refuses connections', () => {
  it('is degraded in every answer, while the agent stays ready', async () => {
    const { local, connector, options } = await setUpApi();
    await request(local).post('/tunnels').send({ forwards_to: 'localhost:1', domain: 'down.localhost' });
    const [bound] = connector.bound.values();
    await expect(bound?.request.upstream.connect()).rejects.toThrow();
    const shown = {
      status: 'degraded',
      last_error: { message: expect.stringMatching(/localhost:1 refuses connections: .*REFUSED/) },
    };
    const upstream = { state: 'refused', reason: expect.stringContaining('ECONNREFUSED') };
    expect((await request(local).get('/tunnels')).body).toMatchObject([{ ...shown, upstream }]);
    expect((await request(local).get('/tunnels/down')).body).toMatchObject({ ...shown, upstream });
    expect((await request(local).get('/status')).body.tunnels).toMatchObject({ total: 1, online: 0, degraded: 1 });
    const metrics = (await request(local).get('/metrics')).text;
    expect(metrics).toContain('device_agent_tunnels{state="degraded"} 1\n');
    expect((await request(local).get('/readyz')).status).toBe(200);
    expect(options.tunnels.counts().online).toBe(1);
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
      ...FRESH,
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

describe('PATCH /tunnels/{url_part}', () => {
  const setUp = async () => {
    const { local, connector, ...rest } = await setUpApi();
    await request(local)
      .post('/tunnels')
      .send({ ...device342, policy });
    const patch = (body: object) => request(local).patch('/tunnels/device342').send(body);
    const inForce = () => connector.bound.get('https://device342.localhost:8443')?.request.trafficPolicy;
    return { local, connector, patch, inForce, ...rest };
  };
  const denying = { on_http_request: [{ actions: [{ type: 'deny' }] }] };

  it('puts another policy in force and on disk', async () => {
    const { patch, inForce, local, store } = await setUp();
    const answer = await patch({ policy: denying });
    expect([answer.status, JSON.parse(answer.body.policy)]).toEqual([200, denying]);
    expect(inForce()).toEqual(denying);
    expect(store.list()[0]?.policy).toEqual(denying);
    expect((await request(local).get('/tunnels/device342')).body.status).toBe('online');
  });

  it('brings the default policies back with null', async () => {
    const { patch, store } = await setUp();
    expect((await patch({ policy: null })).status).toBe(200);
    expect(store.list()[0]?.policy).toBeNull();
  });

  it('keeps the old policy in force when the gateway refuses the new one', async () => {
    const { patch, inForce, connector, store, local } = await setUp();
    const before = inForce();
    connector.beforeOpen = async ({ trafficPolicy }) => {
      if (trafficPolicy?.on_http_request === undefined) return;
      throw new ApiError(400, 'ERR_NGROK_9026', 'not valid', { details: { 'policy.on_http_request[0]': 'wrong' } });
    };
    const answer = await patch({ policy: denying });
    expect([answer.status, answer.body.error_code]).toEqual([400, 'ERR_NGROK_9026']);
    expect(answer.body.details).toEqual({ 'policy.on_http_request[0]': 'wrong' });
    expect(inForce()).toEqual(before);
    expect(store.list()[0]?.policy).toEqual(policy);
    expect((await request(local).get('/tunnels/device342')).body.status).toBe('online');
  });

  it('forwards to another upstream, and saves that', async () => {
    const { patch, connector, store, local } = await setUp();
    const answer = await patch({ forwards_to: 8002 });
    expect([answer.status, answer.body.forwards_to]).toEqual([200, 'localhost:8002']);
    expect(connector.bound.get('https://device342.localhost:8443')?.request.forwardsTo).toBe('localhost:8002');
    expect(store.list()).toMatchObject([{ forwards_to: 'localhost:8002', policy }]);
    expect((await patch({ forwards_to: 'https://8.8.8.8' })).body.error_code).toBe('ERR_AGENT_UPSTREAM_NOT_ALLOWED');
    expect((await patch({})).status).toBe(400);
    expect((await request(local).get('/tunnels/device342')).body).toMatchObject({ forwards_to: 'localhost:8002' });
  });

  it('changes how the gateway treats the upstream, and resets it with null', async () => {
    const { patch, inForce, store } = await setUp();
    const before = inForce()?.on_http_request ?? [];
    const answer = await patch({ max_connections: 2, response_timeout: '10m' });
    expect(answer.body).toMatchObject({ max_connections: 2, response_timeout: '10m' });
    const actions = [{ type: 'gateway-upstream', config: { max_connections: 2, response_timeout: '10m' } }];
    expect(inForce()?.on_http_request).toEqual([...before, { actions }]);
    expect((await patch({ max_connections: null, response_timeout: null })).body).not.toHaveProperty('max_connections');
    expect(inForce()?.on_http_request ?? []).toEqual(before);
    expect(JSON.stringify(store.list())).not.toContain('response_timeout');
  });

  it('changes how the agent connects to an https upstream, which the gateway does not learn', async () => {
    const { patch, inForce } = await setUp();
    const before = inForce()?.on_http_request ?? [];
    const options = {
      upstream_tls_verify: false,
      upstream_tls_min_version: '1.1',
      upstream_tls_server_name: 'cam.lan',
    };
    const answer = await patch({ forwards_to: 'https://127.0.0.1:8443', ...options });
    expect(answer.body).toMatchObject(options);
    expect(inForce()?.on_http_request ?? []).toEqual(before);
    const plain = await patch({ forwards_to: 'http://127.0.0.1:8080' });
    expect([plain.status, Object.keys(plain.body.details)]).toEqual([400, ['upstream_tls_verify']]);
    expect((await patch({ upstream_tls_server_name: null })).body).not.toHaveProperty('upstream_tls_server_name');
  });

  it('keeps the old policy when the new one cannot be saved', async () => {
    const { patch, inForce, store } = await setUp();
    const before = inForce();
    store.save = () => Promise.reject(new ApiError(500, 'ERR_AGENT_NOT_PERSISTED', 'disk full'));
    expect((await patch({ policy: denying })).status).toBe(500);
    expect(inForce()).toEqual(before);
  });

  it.each([
    [{ policy: { inbound: [{ actions: [] }] } }, 400],
    [{ policy: denying, domain: 'x' }, 400],
    [{}, 400],
  ])('answers %j with %i and changes nothing', async (body, status) => {
    const { patch, connector } = await setUp();
    expect((await patch(body)).status).toBe(status);
    expect(connector.requests).toHaveLength(1);
  });

  it('answers 503 without a session and 404 without the tunnel', async () => {
    const { patch, connector, local } = await setUp();
    expect((await request(local).patch('/tunnels/other').send({ policy: null })).status).toBe(404);
    connector.goOffline();
    expect((await patch({ policy: denying })).body.error_code).toBe('ERR_AGENT_OFFLINE');
  });
});

describe('other requests', () => {
  it.each([
    ['PUT', '/tunnels', 405, 'GET, HEAD, POST'],
    ['OPTIONS', '/tunnels', 405, 'GET, HEAD, POST'],
    ['POST', '/tunnels/a', 405, 'GET, HEAD, PATCH, DELETE'],
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
