import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { connect as connectTls } from 'node:tls';
import { brotliDecompressSync, gunzipSync, inflateSync } from 'node:zlib';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { collect } from '../../../support/edge.ts';
import { until } from '../../../support/until.ts';
import { PolicyScene, rule } from './policy-scene.ts';

const TOKENS = await generateKeyPair('ES256');
const KEY_SET = JSON.stringify({ keys: [{ ...(await exportJWK(TOKENS.publicKey)), kid: 'k1', alg: 'ES256' }] });

let scene: PolicyScene;

beforeAll(async () => {
  scene = await PolicyScene.start({ fetchForPolicies: async () => Buffer.from(KEY_SET) });
});
afterAll(() => scene.close());

const onRequest = (...rules: object[]) => scene.bind({ on_http_request: rules });
const onResponse = (...rules: object[]) => scene.bind({ on_http_response: rules });
const onConnect = (...rules: object[]) => scene.bind({ on_tcp_connect: rules });

/** A condition on the request's path. */
const AT_X = "req.url.path == '/x'";

describe('add-headers and remove-headers', () => {
  it("change the upstream's headers with templates, if the conditions hold", async () => {
    const endpoint = await onRequest(
      rule('remove-headers', { headers: ['x-secret'] }, AT_X),
      rule('add-headers', { headers: { 'x-client': `\${conn.client_ip} \${req.method}` } }, AT_X),
    );
    const headers = { 'X-Secret': 's' };
    expect((await endpoint.reached({ path: '/x', headers })).headers).toMatchObject({ 'x-client': '127.0.0.1 GET' });
    expect((await endpoint.reached({ path: '/x', headers })).headers).not.toHaveProperty('x-secret');
    const other = await endpoint.reached({ path: '/y', headers });
    expect(other.headers).toMatchObject({ 'x-secret': 's' });
    expect(other.headers).not.toHaveProperty('x-client');
  });

  it("change the client's headers", async () => {
    const endpoint = await onResponse(
      rule('remove-headers', { headers: ['x-upstream'] }, AT_X),
      rule('add-headers', { headers: { 'x-status': `\${res.status_code}` } }, AT_X),
    );
    const changed = await endpoint.ask({ path: '/x' });
    expect([changed.headers['x-upstream'], changed.headers['x-status']]).toEqual([undefined, '200']);
    const other = await endpoint.ask({ path: '/y' });
    expect([other.headers['x-upstream'], other.headers['x-status']]).toEqual(['yes', undefined]);
  });
});

describe('text beyond ASCII', () => {
  const utf8 = (bytes: string | undefined) => Buffer.from(bytes ?? '', 'latin1').toString();

  it('reaches upstreams, clients and expressions as UTF-8', async () => {
    const endpoint = await scene.bind({
      on_http_request: [
        rule(
          'custom-response',
          { headers: { 'x-text': `\${req.headers['x-name'][0]} 鍵` } },
          "req.headers['x-name'] == ['Zoë']",
        ),
        rule('add-headers', { headers: { 'x-text': 'é 鍵', 'x-path': `\${req.url.path}` } }),
      ],
      on_http_response: [rule('add-headers', { headers: { 'x-text': 'größer' } })],
    });
    const seen = await endpoint.reached({ path: '/%E9%8D%B5' });
    expect([utf8(seen.headers['x-text']), utf8(seen.headers['x-path'])]).toEqual(['é 鍵', '/鍵']);
    const asked = await endpoint.ask({ headers: { 'x-name': Buffer.from('Zoë').toString('latin1') } });
    expect([asked.status, utf8(String(asked.headers['x-text']))]).toEqual([200, 'Zoë 鍵, größer']);
    const inLatin1 = await endpoint.ask({ headers: { 'x-name': 'Zoë' } });
    expect(utf8(String(inLatin1.headers['x-text']))).toBe('Zoë 鍵, größer');
  });
});

describe('deny', () => {
  it('rejects only the requests that match', async () => {
    const endpoint = await onRequest(rule('deny', { status_code: 404 }, AT_X));
    expect([await endpoint.status({ path: '/x' }), await endpoint.status()]).toEqual([404, 200]);
  });

  it('closes only the connections that match', async () => {
    const refusing = await onConnect(rule('deny', undefined, "inCidrRange(conn.client_ip, '127.0.0.0/8')"));
    await expect(refusing.ask()).rejects.toThrow(/hang up|ECONNRESET/);
    const other = await onConnect(rule('deny', undefined, "inCidrRange(conn.client_ip, '10.0.0.0/8')"));
    expect(await other.status()).toBe(200);
  });
});

describe('custom-response', () => {
  it('answers instead of the upstream, and runs the response phase', async () => {
    const endpoint = await scene.bind({
      on_http_request: [rule('custom-response', { status_code: 418, body: `hello \${req.url.path}` }, AT_X)],
      on_http_response: [rule('add-headers', { headers: { 'x-seen': `\${res.status_code}` } })],
    });
    const answer = await endpoint.ask({ path: '/x' });
    expect([answer.status, answer.body, answer.headers['x-seen']]).toEqual([418, 'hello /x', '418']);
    expect(await endpoint.status()).toBe(200);
  });

  it("replaces the upstream's response", async () => {
    const endpoint = await onResponse(
      rule('custom-response', { status_code: 503, body: 'later' }, 'res.status_code == 500'),
    );
    expect(await endpoint.ask({ path: '/status/500' })).toMatchObject({ status: 503, body: 'later' });
    expect(await endpoint.status({ path: '/status/404' })).toBe(404);
  });
});

describe('redirect', () => {
  it('redirects the client, unless the target is the same URL', async () => {
    const endpoint = await onRequest(rule('redirect', { from: '/old/([a-z]+)', to: '/new/$1', status_code: 301 }));
    const answer = await endpoint.ask({ path: '/old/page?q=1' });
    expect([answer.status, answer.headers.location]).toEqual([301, `http://${endpoint.host}/new/page?q=1`]);
    expect(await endpoint.status({ path: '/new/page' })).toBe(200);
  });
});

describe('url-rewrite', () => {
  it('changes only the matched part of the URL', async () => {
    const endpoint = await onRequest(rule('url-rewrite', { from: '/v1/(.*)', to: '/api/$1' }));
    expect((await endpoint.reached({ path: '/v1/cams?x=1' })).url).toBe('/api/cams?x=1');
    expect((await endpoint.reached({ path: '/v2/cams' })).url).toBe('/v2/cams');
  });
});

describe('restrict-ips', () => {
  it('rejects addresses that are not allowed, in every phase', async () => {
    const config = { allow: ['10.0.0.0/8'] };
    for (const endpoint of [
      await onRequest(rule('restrict-ips', config)),
      await onResponse(rule('restrict-ips', config)),
    ]) {
      const answer = await endpoint.ask();
      expect([answer.status, answer.headers['ngrok-error-code']]).toEqual([403, 'ERR_NGROK_3203']);
      expect(answer.headers).not.toHaveProperty('x-upstream');
    }
    await expect((await onConnect(rule('restrict-ips', config))).ask()).rejects.toThrow(/hang up|ECONNRESET/);
  });

  it('allows other addresses, whatever X-Forwarded-For says', async () => {
    const endpoint = await onRequest(rule('restrict-ips', { allow: ['127.0.0.1'], deny: ['127.0.0.2/32'] }));
    expect(await endpoint.status({ headers: { 'x-forwarded-for': '127.0.0.2' } })).toBe(200);
  });

  it('applies changed IP policies of the management API to the next request', async () => {
    const { store } = scene.gateway;
    const common = { created_at: store.now(), description: null, metadata: null };
    const id = store.ids.next('ipp');
    await store.database.write(() => store.ipPolicies.insert({ ...common, id }));
    const endpoint = await onRequest(rule('restrict-ips', { ip_policies: [id] }));
    expect(await endpoint.status()).toBe(403);
    const pooled = { ...common, id: store.ids.next('ipr'), ip_policy_id: id, cidr: '127.0.0.0/8', action: 'allow' };
    await store.database.write(() => store.ipPolicyRules.insert(pooled));
    expect(await endpoint.status()).toBe(200);
    await store.database.write(() => store.ipPolicyRules.update({ ...pooled, action: 'deny' }));
    expect(await endpoint.status()).toBe(403);
    await expect(onRequest(rule('restrict-ips', { ip_policies: ['ipp_unknown'] }))).rejects.toThrow(/IP policy/);
  });
});

describe('basic-auth', () => {
  const authorization = (text: string) => ({ authorization: `Basic ${Buffer.from(text).toString('base64')}` });

  it('demands credentials and accepts only valid ones', async () => {
    const endpoint = await onRequest(rule('basic-auth', { credentials: ['jo:longenough'], realm: 'cams' }));
    const refused = await endpoint.ask({ headers: authorization('jo:wrong') });
    expect(refused).toMatchObject({
      status: 401,
      headers: { 'www-authenticate': 'Basic realm="cams"', 'ngrok-error-code': 'ERR_NGROK_3401' },
    });
    expect(await endpoint.status({ headers: authorization('jo:longenough') })).toBe(200);
  });
});

describe('rate-limit', () => {
  const limit = { name: 'two', algorithm: 'sliding_window', capacity: 2, rate: '60s', bucket_key: ['conn.client_ip'] };

  it('rejects requests above the limit with Retry-After', async () => {
    const endpoint = await onRequest(rule('rate-limit', limit));
    expect([await endpoint.status(), await endpoint.status()]).toEqual([200, 200]);
    const { status, headers } = await endpoint.ask();
    expect(status).toBe(429);
    expect(Number(headers['retry-after'])).toBeGreaterThan(0);
  });

  it('keeps its count when the agent binds the endpoint again', async () => {
    const policy = { on_http_request: [rule('rate-limit', limit)] };
    const first = await scene.bind(policy);
    expect([await first.status(), await first.status()]).toEqual([200, 200]);
    await first.listener.close();
    const again = await scene.bind(policy, { domain: first.host });
    expect(await again.status()).toBe(429);
    expect(await (await scene.bind(policy)).status()).toBe(200);
  });
});

describe('gateway-limit-bandwidth', () => {
  it('limits what the clients of one address get and send, together', async () => {
    // 500 kB/s to clients, 100 kB/s from them.
    const endpoint = await onRequest(rule('gateway-limit-bandwidth', { bandwidth: '4Mbit/800kbit' }));
    const began = performance.now();
    const all = await Promise.all([endpoint.ask({ path: '/long' }), endpoint.ask({ path: '/long' })]);
    for (const { body } of all) expect(body.length).toBe(300_000);
    expect(performance.now() - began).toBeGreaterThan((600_000 / 500) * 0.9);
    const sent = performance.now();
    const body = 'u'.repeat(100_000);
    const seen = await endpoint.reached({ method: 'POST', path: '/y', body });
    expect(seen.body).toBe(body);
    expect(performance.now() - sent).toBeGreaterThan(body.length / 100);
  });

  it('holds for what is forwarded to an internal endpoint, too', async () => {
    await scene.bind({}, { domain: 'limited.internal', scheme: 'HTTPS' });
    const limit = rule('gateway-limit-bandwidth', { bandwidth: '4Mbit/unlimited' });
    const forward = rule('forward-internal', { url: 'https://limited.internal' });
    const endpoint = await scene.bind({ on_http_request: [limit, forward] });
    const began = performance.now();
    expect((await endpoint.ask({ path: '/long' })).body.length).toBe(300_000);
    expect(performance.now() - began).toBeGreaterThan((300_000 / 500) * 0.8);
  });

  it('lets the next request of a connection be, when a client leaves in the middle of an upload', async () => {
    const endpoint = await onRequest(rule('gateway-limit-bandwidth', { bandwidth: 'unlimited/80kbit' }));
    const { host, port } = endpoint;
    const { arrived } = scene;
    const leaving = request({ host: '127.0.0.1', port, method: 'POST', headers: { host, 'content-length': 90_000 } });
    leaving.on('error', () => {}).write(Buffer.alloc(60_000, 'u'));
    await until(() => scene.arrived > arrived, 'the upload to arrive');
    leaving.destroy();
    for (let request = 0; request < 3; request += 1) {
      expect((await endpoint.reached({ path: '/z', body: 'next' })).body).toBe('next');
    }
  });
});

describe('jwt-validation', () => {
  const config = (token: object) => ({
    issuer: { allow_list: [{ value: 'https://issuer.example/' }] },
    audience: { allow_list: [{ value: 'cams' }] },
    http: { tokens: [{ type: 'jwt', ...token }] },
    jws: {
      allowed_algorithms: ['ES256'],
      keys: { sources: { additional_jkus: ['https://issuer.example/keys'] } },
    },
  });
  const signed = (audience: string) =>
    new SignJWT({ sub: 'jo' })
      .setProtectedHeader({ alg: 'ES256', kid: 'k1' })
      .setIssuer('https://issuer.example/')
      .setAudience(audience)
      .setExpirationTime('5m')
      .sign(TOKENS.privateKey);

  it('allows requests with a valid token and exposes its claims to later rules', async () => {
    const endpoint = await onRequest(
      rule('jwt-validation', config({ method: 'header', name: 'Authorization', prefix: 'Bearer ' })),
      rule('add-headers', { headers: { 'x-who': `\${actions.ngrok.jwt_validation.tokens[0].payload.sub}` } }),
    );
    const ask = async (token: string) => endpoint.ask({ headers: { authorization: `Bearer ${token}` } });
    expect(JSON.parse((await ask(await signed('cams'))).body).headers['x-who']).toBe('jo');
    expect(await ask(await signed('others'))).toMatchObject({ status: 401 });
    expect(await endpoint.ask()).toMatchObject({ status: 401, headers: { 'ngrok-error-code': /ERR_NGROK_34\d\d/ } });
  });

  it('finds the token in the body, which still reaches the upstream', async () => {
    const endpoint = await onRequest(rule('jwt-validation', config({ method: 'body', name: 'token' })));
    const body = JSON.stringify({ token: await signed('cams'), more: 'ü'.repeat(10_000) });
    const headers = { 'content-type': 'application/json' };
    expect((await endpoint.reached({ body, headers })).body).toBe(body);
    expect(await endpoint.status({ body: '{}', headers })).toBe(401);
  });
});

describe('verify-webhook', () => {
  const config = { provider: 'github', secret: 'topsecret' };
  const sign = (body: string) => ({
    'x-hub-signature-256': `sha256=${createHmac('sha256', 'topsecret').update(body).digest('hex')}`,
  });

  it('allows signed requests unchanged', async () => {
    const endpoint = await onRequest(rule('verify-webhook', config));
    const body = `{"a":"${'x'.repeat(200_000)}"}`;
    expect((await endpoint.reached({ body, headers: sign(body) })).body).toBe(body);
    const chunked = { ...sign(body), 'transfer-encoding': 'chunked' };
    expect((await endpoint.reached({ body, headers: chunked })).body).toBe(body);
    const patient = { ...sign(body), expect: '100-continue' };
    expect((await endpoint.reached({ body, headers: patient })).body).toBe(body);
  });

  it('rejects unsigned requests and keeps the connection open', async () => {
    const endpoint = await onRequest(rule('verify-webhook', config));
    const answer = await endpoint.ask({ body: 'forged', headers: sign('real') });
    expect([answer.status, answer.headers['ngrok-error-code']]).toEqual([403, 'ERR_NGROK_3204']);
  });
});

describe('log', () => {
  it('writes to the gateway’s log if the conditions hold', async () => {
    const endpoint = await onRequest(rule('log', { metadata: { path: `\${req.url.path}`, n: 1 } }, AT_X));
    await endpoint.ask({ path: '/x' });
    await endpoint.ask({ path: '/y' });
    const lines = scene.lines.filter(({ url }) => String(url).includes(endpoint.host));
    expect(lines).toMatchObject([{ msg: 'traffic policy log', client: '127.0.0.1', metadata: { path: '/x', n: 1 } }]);
  });
});

describe('set-vars', () => {
  it('sets variables for the rest of the phase only', async () => {
    const endpoint = await scene.bind({
      on_http_request: [
        rule('set-vars', { vars: [{ who: `\${req.headers['x-who'][0]}` }] }, "'x-who' in req.headers"),
        rule('custom-response', { body: `no \${vars.who}` }, "has(vars.who) && vars.who == 'eve'"),
      ],
      on_http_response: [rule('add-headers', { headers: { 'x-vars': `\${string(has(vars.who))}` } })],
    });
    expect((await endpoint.ask({ headers: { 'x-who': 'eve' } })).body).toBe('no eve');
    const other = await endpoint.ask({ headers: { 'x-who': 'jo' } });
    expect([other.status, other.headers['x-vars']]).toEqual([200, 'false']);
  });
});

describe('compress-response', () => {
  async function encoded(host: string, path: string, accepted: string): Promise<IncomingMessage> {
    const headers = { host, 'accept-encoding': accepted };
    const req = request({ host: '127.0.0.1', port: scene.gateway.httpPort, path, headers, agent: false }).end();
    const [res] = (await once(req, 'response')) as [IncomingMessage];
    return res;
  }

  it.each([
    ['gzip', gunzipSync],
    ['deflate', inflateSync],
    ['br', brotliDecompressSync],
  ])('compresses with %s', async (name, decode) => {
    const { host } = await onResponse(rule('compress-response'));
    const res = await encoded(host, `/${'long'.repeat(3000)}`, name);
    const body = await collect(res);
    expect(res.headers).toMatchObject({ 'content-encoding': name, vary: 'Accept-Encoding' });
    expect(body.length).toBeLessThan(2000);
    expect(JSON.parse(decode(body).toString()).url).toBe(`/${'long'.repeat(3000)}`);
  });

  it('leaves responses unchanged that the client cannot decode', async () => {
    const endpoint = await onResponse(rule('compress-response', { algorithms: ['br'] }));
    expect((await encoded(endpoint.host, '/', 'gzip')).headers).not.toHaveProperty('content-encoding');
    expect((await endpoint.ask({ method: 'HEAD' })).headers).not.toHaveProperty('content-encoding');
  });

  it('streams events as they happen', async () => {
    const { host } = await onResponse(rule('compress-response'));
    const res = await encoded(host, '/events', 'gzip');
    const [chunk] = (await once(res, 'data')) as [Buffer];
    expect(gunzipSync(chunk, { finishFlush: 2 }).toString()).toBe('data: 1\n\n');
    res.destroy();
  });

  it('compresses the policy’s own responses', async () => {
    const { host } = await scene.bind({
      on_http_request: [rule('custom-response', { body: 'long '.repeat(1000) })],
      on_http_response: [rule('compress-response')],
    });
    const res = await encoded(host, '/', 'gzip');
    expect(gunzipSync(await collect(res)).toString()).toBe('long '.repeat(1000));
  });
});

describe('close-connection', () => {
  it('closes matching connections without a response', async () => {
    const endpoint = await onRequest(rule('close-connection', undefined, AT_X));
    await expect(endpoint.ask({ path: '/x' })).rejects.toThrow('ECONNRESET');
    expect(await endpoint.status()).toBe(200);
  });
});

describe('terminate-tls', () => {
  it('may ask for the defaults, and exposes the handshake to the policy', async () => {
    const endpoint = await scene.bind(
      {
        on_tcp_connect: [rule('terminate-tls', { min_version: '1.2' })],
        on_http_request: [
          rule('custom-response', { body: `\${conn.tls.version} \${conn.tls.sni} \${conn.tls.server.san}` }),
        ],
      },
      { scheme: 'HTTPS' },
    );
    const { httpsPort, sessionCa } = scene.gateway;
    const socket = connectTls({ host: '127.0.0.1', port: httpsPort, servername: endpoint.host, ca: sessionCa });
    socket.write(`GET / HTTP/1.1\r\nHost: ${endpoint.host}\r\nConnection: close\r\n\r\n`);
    expect((await collect(socket)).toString()).toMatch(new RegExp(`1\\.3 ${endpoint.host} .*${endpoint.host}`));
  });
});

describe('circuit-breaker', () => {
  const config = { error_threshold: 0.5, volume_threshold: 2, window_duration: '60s', tripped_duration: '60s' };

  it('stops sending requests to a failing upstream', async () => {
    const endpoint = await onRequest(rule('circuit-breaker', config));
    const path = '/status/500';
    expect([await endpoint.status({ path }), await endpoint.status({ path })]).toEqual([500, 500]);
    const before = scene.arrived;
    expect(await endpoint.ask()).toMatchObject({ status: 503, headers: { 'ngrok-error-code': 'ERR_NGROK_3202' } });
    expect(scene.arrived).toBe(before);
  });
});
