import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { gunzipSync } from 'node:zlib';
import type { HttpListenerBuilder } from '@ngrok/ngrok';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { agentSession } from '../../support/gateway.ts';
import { askRaw } from '../../support/http-request.ts';
import { PolicyScene, rule } from '../edge/proxy/policy-scene.ts';
import { SilentLink } from '../sessions/session-gateway.ts';

let scene: PolicyScene;

beforeAll(async () => {
  scene = await PolicyScene.start();
});
afterAll(() => scene.close());

/** A text that policies would interpret. */
const TRICKY = `a\${b}"'c:d`;

type SetUp = (builder: HttpListenerBuilder) => unknown;
const open = (setUp: SetUp) => scene.open(setUp);
const basic = (pair: string) => ({ authorization: `Basic ${Buffer.from(pair).toString('base64')}` });
const codeOf = (answer: { status: number; headers: NodeJS.Dict<string | string[]> }) => [
  answer.status,
  answer.headers['ngrok-error-code'],
];

/** The error that an agent gets for these options. */
async function refusal(setUp: SetUp): Promise<{ code: unknown; message: string }> {
  const error: unknown = await open(setUp).then(
    () => new Error('was bound'),
    (reason: unknown) => reason,
  );
  if (!(error instanceof Error)) throw error;
  return { code: 'errorCode' in error ? error.errorCode : null, message: error.message };
}

describe('basicAuth', () => {
  it('allows only clients that send one of the passwords', async () => {
    const endpoint = await open((builder) => builder.basicAuth('ann', 'password1').basicAuth('bob', TRICKY));
    expect(codeOf(await endpoint.ask())).toEqual([401, 'ERR_NGROK_3401']);
    expect(await endpoint.status({ headers: basic('ann:wrong-password') })).toBe(401);
    expect(await endpoint.status({ headers: basic('ann:password1') })).toBe(200);
    expect(await endpoint.status({ headers: basic(`bob:${TRICKY}`) })).toBe(200);
    const anonymous = await open(() => {});
    expect(await anonymous.status()).toBe(200);
  });

  it.each<[string, SetUp, string]>([
    ['an empty user name', (builder) => builder.basicAuth('', 'password1'), 'ERR_NGROK_359'],
    ['a short password', (builder) => builder.basicAuth('ann', 'short'), 'ERR_NGROK_360'],
    ['a long password', (builder) => builder.basicAuth('ann', 'p'.repeat(129)), 'ERR_NGROK_360'],
    ['a colon in the user name', (builder) => builder.basicAuth('a:b', 'password1'), 'ERR_NGROK_301'],
  ])('is refused with %s', async (_what, setUp, code) => {
    expect(await refusal(setUp)).toMatchObject({ code, message: expect.stringContaining('BasicAuth: ') });
  });

  it('is refused beside another authentication, without repeating the password', async () => {
    const policy = JSON.stringify({ on_http_request: [rule('basic-auth', { credentials: ['eve:password2'] })] });
    const { code, message } = await refusal((builder) => builder.basicAuth('ann', 'password1').trafficPolicy(policy));
    expect(code).toBe('ERR_NGROK_9026');
    expect(message).toContain('second authentication action');
    expect(message).not.toMatch(/password\d/);
  });
});

describe('allowCidr and denyCidr', () => {
  it('allow the addresses that are allowed and not denied', async () => {
    const allowed = await open((builder) => builder.allowCidr('127.0.0.0/8').denyCidr('127.9.0.0/16'));
    expect(await allowed.status()).toBe(200);
    const elsewhere = await open((builder) => builder.allowCidr('10.0.0.0/8'));
    expect(codeOf(await elsewhere.ask())).toEqual([403, 'ERR_NGROK_3203']);
    const denied = await open((builder) => builder.allowCidr('127.0.0.1/32').denyCidr('0.0.0.0/0'));
    expect(await denied.status()).toBe(403);
  });

  it('are refused for an invalid range, or when they would reject every client', async () => {
    expect((await refusal((builder) => builder.allowCidr('10.0.0.0/33'))).code).toBe('ERR_NGROK_362');
    expect((await refusal((builder) => builder.denyCidr('10.0.0.0/8'))).code).toBe('ERR_NGROK_393');
  });
});

describe('allowUserAgent and denyUserAgent', () => {
  it('reject agents that are denied and not allowed, and requests without a User-Agent', async () => {
    const endpoint = await open((builder) =>
      builder.allowUserAgent('(?i)google-images').denyUserAgent('(?i)google').denyUserAgent('[Bb]ing'),
    );
    const as = (agent: string) => endpoint.ask({ headers: { 'user-agent': agent } });
    expect((await as('Google-Images/1.0')).status).toBe(200);
    expect(codeOf(await as('Googlebot/2.1'))).toEqual([403, 'ERR_NGROK_3211']);
    expect((await as('bingbot')).status).toBe(403);
    expect((await as('Mozilla/5.0')).status).toBe(200);
    expect(codeOf(await endpoint.ask())).toEqual([403, 'ERR_NGROK_3211']);
    const tolerant = await open((builder) => builder.allowUserAgent('^$').denyUserAgent('x'));
    expect(await tolerant.status()).toBe(200);
  });

  it('reject a header that would take seconds to match', async () => {
    const endpoint = await open((builder) => builder.denyUserAgent('(?:a.{0,100}b.{0,100}){2}$'));
    const before = process.cpuUsage();
    const answer = await endpoint.ask({ headers: { 'user-agent': 'abb'.repeat(4000) } });
    expect(codeOf(answer)).toEqual([500, 'ERR_NGROK_2300']);
    expect(process.cpuUsage(before).user / 1000).toBeLessThan(2000);
    expect(await endpoint.status({ headers: { 'user-agent': 'curl/8.0' } })).toBe(200);
  });

  it('are refused for an invalid regular expression', async () => {
    expect((await refusal((builder) => builder.denyUserAgent('('))).code).toBe('ERR_NGROK_2090');
  });
});

describe('webhookVerification', () => {
  it('passes requests that the provider has signed', async () => {
    const endpoint = await open((builder) => builder.webhookVerification('github', TRICKY));
    const body = '{"zen":"yes"}';
    const signature = `sha256=${createHmac('sha256', TRICKY).update(body).digest('hex')}`;
    const headers = { 'x-hub-signature-256': signature };
    expect((await endpoint.reached({ body, headers })).body).toBe(body);
    expect(codeOf(await endpoint.ask({ body: '{"zen":"no"}', headers }))).toEqual([403, 'ERR_NGROK_3204']);
  });

  it('is refused for unsupported providers', async () => {
    const of = (provider: string) => refusal((builder) => builder.webhookVerification(provider, 's'));
    expect(await of('nobody')).toMatchObject({
      code: 'ERR_NGROK_364',
      message: expect.stringContaining('not a known provider of webhooks'),
    });
    expect(await of('orbit')).toMatchObject({
      code: 'ERR_NGROK_364',
      message: expect.stringContaining('cannot verify webhooks of orbit: '),
    });
  });
});

describe('circuitBreaker', () => {
  it('stops requests to a failing upstream, and counts only those that reached it', async () => {
    const endpoint = await open((builder) => builder.circuitBreaker(0.1).basicAuth('ann', 'password1'));
    const headers = basic('ann:password1');
    for (let refused = 0; refused < 12; refused++) expect(await endpoint.status()).toBe(401);
    for (let failed = 0; failed < 10; failed++) {
      expect(await endpoint.status({ path: '/status/500', headers })).toBe(500);
    }
    const before = scene.arrived;
    expect(codeOf(await endpoint.ask({ headers }))).toEqual([503, 'ERR_NGROK_3202']);
    expect(scene.arrived).toBe(before);
  });

  it('is off at 0 and refused above 1', async () => {
    const endpoint = await open((builder) => builder.circuitBreaker(0));
    for (let failed = 0; failed < 11; failed++) expect(await endpoint.status({ path: '/status/500' })).toBe(500);
    expect(await endpoint.status()).toBe(200);
    expect((await refusal((builder) => builder.circuitBreaker(1.5))).code).toBe('ERR_NGROK_361');
  });
});

describe('compression', () => {
  it('compresses responses for clients that accept it', async () => {
    const ask = async (setUp: SetUp, accepted: string) => {
      const { host } = await open(setUp);
      const path = `/${'long'.repeat(500)}`;
      return askRaw(scene.gateway.httpPort, host, { path, headers: { 'accept-encoding': accepted } });
    };
    const compressed = await ask((builder) => builder.compression(), 'br, gzip');
    expect(compressed.headers).toMatchObject({ 'content-encoding': 'gzip', vary: 'Accept-Encoding' });
    expect(JSON.parse(gunzipSync(compressed.body).toString()).method).toBe('GET');
    expect((await ask((builder) => builder.compression(), 'identity')).headers).not.toHaveProperty('content-encoding');
    expect((await ask(() => {}, 'gzip')).headers).not.toHaveProperty('content-encoding');
  });
});

describe('requestHeader and responseHeader', () => {
  it('add, remove and replace headers after everything else', async () => {
    const endpoint = await open((builder) =>
      builder
        .requestHeader('X-Client', `\${conn.client_ip}`)
        .requestHeader('authorization', 'Basic other')
        .removeRequestHeader('Authorization')
        .removeRequestHeader('x-secret')
        .responseHeader('X-Frame-Options', 'DENY')
        .removeResponseHeader('X-Upstream')
        .basicAuth('ann', 'password1'),
    );
    const answer = await endpoint.ask({ headers: { ...basic('ann:password1'), 'X-Secret': 's' } });
    expect(answer.headers).toMatchObject({ 'x-frame-options': 'DENY' });
    expect(answer.headers).not.toHaveProperty('x-upstream');
    const { headers } = JSON.parse(answer.body);
    expect(headers).toMatchObject({ 'x-client': '127.0.0.1', authorization: 'Basic other' });
    expect(headers).not.toHaveProperty('x-secret');
  });

  it('can use results of policy actions', async () => {
    const user = `\${actions.ngrok.basic_auth.credentials.username}`;
    const endpoint = await open((builder) => builder.basicAuth('ann', 'password1').requestHeader('x-user', user));
    const seen = await endpoint.reached({ headers: basic('ann:password1') });
    expect(seen.headers['x-user']).toBe('ann');
  });

  it('replace the Host header and rewrite redirects', async () => {
    const endpoint = await open((builder) => builder.requestHeader('Host', 'inside:8080').removeRequestHeader('host'));
    expect((await endpoint.reached()).headers.host).toBe('inside:8080');
    expect((await endpoint.ask({ path: '/redirect' })).headers.location).toBe('/there?x');
    const other = await open(() => {});
    expect((await other.ask({ path: '/redirect' })).headers.location).toBe(`http://${other.host}/there?x`);
  });

  it.each<[string, SetUp, string]>([
    ['no name', (builder) => builder.requestHeader('', 'x'), 'ERR_NGROK_370'],
    ['an invalid name', (builder) => builder.requestHeader('x y', 'x'), 'ERR_NGROK_372'],
    ['an invalid response header', (builder) => builder.removeResponseHeader('x y'), 'ERR_NGROK_373'],
    ['a line break', (builder) => builder.responseHeader('x', 'a\r\nb: c'), 'ERR_NGROK_374'],
    ['a long name', (builder) => builder.requestHeader('x'.repeat(129), 'x'), 'ERR_NGROK_377'],
    ['a long value', (builder) => builder.requestHeader('x', 'x'.repeat(1025)), 'ERR_NGROK_378'],
    ['the host removed', (builder) => builder.removeRequestHeader('host'), 'ERR_NGROK_398'],
    ['the user agent changed', (builder) => builder.removeRequestHeader('user-agent'), 'ERR_NGROK_301'],
    ['the framing changed', (builder) => builder.requestHeader('content-length', '1'), 'ERR_NGROK_301'],
    ['an invalid expression', (builder) => builder.requestHeader('x', `\${.ngrok.geo}`), 'ERR_NGROK_301'],
  ])('are refused with %s', async (_what, setUp, code) => {
    expect(await refusal(setUp)).toMatchObject({ code, message: expect.stringMatching(/Re(quest|sponse)Headers/) });
  });

  it('are refused above the limit', async () => {
    const { code } = await refusal((builder) => {
      for (let number = 0; number <= 10; number++) builder.requestHeader(`x-${number}`, 'x');
    });
    expect(code).toBe('ERR_NGROK_376');
  });
});

describe('oauth and oidc', () => {
  it('are refused', async () => {
    expect(await refusal((builder) => builder.oauth('google'))).toMatchObject({
      code: 'ERR_NGROK_365',
      message: expect.stringContaining('OAuth'),
    });
    expect(await refusal((builder) => builder.oidc('https://id.example', 'id', 'secret'))).toMatchObject({
      code: 'ERR_NGROK_365',
      message: expect.stringContaining('OIDC'),
    });
  });
});

it('options stay in force when the agent reconnects', async () => {
  const { gateway } = scene;
  const link = await SilentLink.to(gateway.sessionPort);
  const session = await agentSession(gateway, `127.0.0.1:${link.port}`)
    .handleDisconnection(() => true)
    .connect();
  const endpoint = await scene.open(
    (builder) =>
      builder
        .basicAuth('ann', 'password1')
        .allowCidr('127.0.0.1/32')
        .denyUserAgent('bot')
        .allowUserAgent('^$')
        .requestHeader('x-added', 'yes')
        .responseHeader('x-added', 'yes')
        .compression()
        .circuitBreaker(0.9),
    { session },
  );
  const removed = once(gateway.endpoints, 'removed');
  link.cut();
  await removed;
  if (!gateway.endpoints.lookup('http', endpoint.host)) await once(gateway.endpoints, 'added');
  const headers = basic('ann:password1');
  expect(await endpoint.status()).toBe(401);
  expect(await endpoint.status({ headers: { ...headers, 'user-agent': 'bot' } })).toBe(403);
  const answer = await askRaw(gateway.httpPort, endpoint.host, { headers: { ...headers, 'accept-encoding': 'gzip' } });
  expect(answer.headers).toMatchObject({ 'x-added': 'yes', 'content-encoding': 'gzip' });
  expect(JSON.parse(gunzipSync(answer.body).toString()).headers).toMatchObject({ 'x-added': 'yes' });
  await session.close();
});
