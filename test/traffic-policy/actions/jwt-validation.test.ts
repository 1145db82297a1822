import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { exportJWK, generateKeyPair, type JWTPayload, SignJWT } from 'jose';
import { beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/lib/time/clock.ts';
import { compilePolicy } from '../../../src/traffic-policy/engine.ts';
import type { PolicyPorts, PolicyTrouble } from '../../../src/traffic-policy/ports.ts';
import { until } from '../../support/until.ts';
import { type FakeRequest, requestFor } from '../fake-request.ts';
import { RecordedTime } from '../recorded-time.ts';

type KeyPair = Awaited<ReturnType<typeof generateKeyPair>>;

const ISSUER = 'https://idp.example.com/';
const JWKS = 'https://idp.example.com/jwks';

let ours: KeyPair;
let theirs: KeyPair;
let keySet: string;

beforeAll(async () => {
  ours = await generateKeyPair('ES256', { extractable: true });
  theirs = await generateKeyPair('ES256', { extractable: true });
  keySet = JSON.stringify({ keys: [{ ...(await exportJWK(ours.publicKey)), kid: 'k1', alg: 'ES256' }] });
});

interface TokenParts {
  issuer?: string;
  audience?: string;
  expires?: string;
  kid?: string;
  typ?: string;
  key?: KeyPair;
  claims?: JWTPayload;
}

function token({
  issuer = ISSUER,
  audience = 'cameras',
  expires = '5m',
  kid = 'k1',
  typ = 'JWT',
  key = ours,
  claims = {},
}: TokenParts = {}) {
  return new SignJWT({ sub: 'jo', ...claims })
    .setProtectedHeader({ alg: 'ES256', kid, typ })
    .setIssuer(issuer)
    .setAudience(audience)
    .setExpirationTime(expires)
    .sign(key.privateKey);
}

const HEADER = { type: 'jwt', method: 'header', name: 'authorization', prefix: 'Bearer ' };

function policyText(tokens: object[] = [HEADER], keys: unknown = { sources: { additional_jkus: [JWKS] } }): string {
  const config = {
    issuer: { allow_list: [{ value: ISSUER }] },
    audience: { allow_list: [{ value: 'cameras' }, { value: 'doors' }] },
    http: { tokens },
    jws: { allowed_algorithms: ['ES256', 'RS256'], keys },
  };
  const subject = ['$', '{actions.ngrok.jwt_validation.tokens[0].payload.sub}'].join('');
  return JSON.stringify({
    on_http_request: [
      { actions: [{ type: 'jwt-validation', config }] },
      { actions: [{ type: 'custom-response', config: { body: subject } }] },
    ],
  });
}

async function ask(fake: FakeRequest, text = policyText(), ports: Partial<PolicyPorts> = {}) {
  const fetch = async (url: string) => {
    if (url !== JWKS) throw new Error(`not found: ${url}`);
    return Buffer.from(keySet);
  };
  return compilePolicy(text, 'https', { ports: { fetch, ...ports } }).onHttpRequest?.(requestFor(fake));
}

const bearer = (value: string) => ({ headers: ['Authorization', `Bearer ${value}`] });

describe('jwt-validation', () => {
  it('charges for reading the body and for the signature, which follow a wait', async () => {
    const time = new RecordedTime();
    const fake = {
      method: 'POST',
      headers: ['content-type', 'application/json'],
      body: JSON.stringify({ token: await token({ key: theirs }) }),
    };
    const place = { type: 'jwt', method: 'body', name: 'token' };
    expect(await ask(fake, policyText([place]), { processorTime: time })).toMatchObject({ status: 401 });
    expect(time.runs).toBe(4);
    expect(time.spentMs).toBeGreaterThan(0);
  });

  it('admits a valid token and records its claims', async () => {
    const outcome = await ask(bearer(await token()));
    expect(outcome).toMatchObject({ kind: 'answer', status: 200 });
    expect(outcome?.kind === 'answer' && outcome.body.toString()).toBe('jo');
  });

  it('accepts single key sources and lists, and tries them in order', async () => {
    const keys = [
      {
        sources: [{ additional_jkus: ['https://idp.example.com/gone', JWKS] }],
        identification: { token_claims: ['kid'] },
      },
    ];
    const troubles: PolicyTrouble[] = [];
    const onTrouble = (trouble: PolicyTrouble) => troubles.push(trouble);
    expect(await ask(bearer(await token()), policyText([HEADER], keys), { onTrouble })).toMatchObject({ status: 200 });
    expect(troubles).toMatchObject([{ message: expect.stringMatching(/cannot fetch .*gone/) }]);
  });

  it.each<[string, TokenParts, string]>([
    ['of another issuer', { issuer: 'https://idp.example.com' }, '3403'],
    ['for another audience', { audience: 'lamps' }, '3403'],
    ['that has expired', { expires: '-1m' }, '3403'],
    ['whose key is not known', { kid: 'k2' }, '3403'],
  ])('rejects a token %s', async (_, parts, code) => {
    expect(await ask(bearer(await token(parts)))).toMatchObject({
      kind: 'error',
      status: 401,
      code: `ERR_NGROK_${code}`,
    });
  });

  it('rejects an unsigned token and one with a foreign signature', async () => {
    expect(await ask(bearer(await token({ key: theirs })))).toMatchObject({ status: 401, code: 'ERR_NGROK_3401' });
    const payload = Buffer.from(JSON.stringify({ iss: ISSUER, aud: 'cameras' })).toString('base64url');
    const unsigned = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${payload}.`;
    expect(await ask(bearer(unsigned))).toMatchObject({ status: 401 });
  });

  it('rejects a token that never expires', async () => {
    const { exp: _, ...claims } = JSON.parse(Buffer.from((await token()).split('.')[1] ?? '', 'base64url').toString());
    const jwt = new SignJWT(claims).setProtectedHeader({ alg: 'ES256', kid: 'k1' }).sign(ours.privateKey);
    expect(await ask(bearer(await jwt))).toMatchObject({ status: 401, message: expect.stringMatching(/exp /) });
  });

  it.each([
    ['one of several', ['short', 'long'], 'short', 401, '3401'],
    ['the only one', ['short'], 'short', 401, '3403'],
    ['beside a proper one', ['short', 'long'], 'long', 200, ''],
  ])(
    'rejects tokens of an RSA key with 1,024 bits, which is %s without a name',
    async (_, published, signer, status, code) => {
      const pairs: Record<string, { publicKey: KeyObject; privateKey: KeyObject }> = {
        short: generateKeyPairSync('rsa', { modulusLength: 1024 }),
        long: generateKeyPairSync('rsa', { modulusLength: 2048 }),
      };
      const encode = (part: object) => Buffer.from(JSON.stringify(part)).toString('base64url');
      const exp = Math.floor(Date.now() / 1000) + 300;
      const signed = `${encode({ alg: 'RS256' })}.${encode({ iss: ISSUER, aud: 'cameras', sub: 'jo', exp })}`;
      const key = (name: string) => pairs[name] as (typeof pairs)[string];
      const jwt = `${signed}.${sign('sha256', Buffer.from(signed), key(signer).privateKey).toString('base64url')}`;
      const keys = published.map((name) => key(name).publicKey.export({ format: 'jwk' }));
      const fetch = async () => Buffer.from(JSON.stringify({ keys }));
      const refusal = { code: `ERR_NGROK_${code}`, headers: ['www-authenticate', 'Bearer'] };
      expect(await ask(bearer(jwt), policyText(), { fetch })).toMatchObject({ status, ...(status === 401 && refusal) });
    },
  );

  it('ignores a key with an exponent as long as itself, and says so', async () => {
    const { publicKey } = generateKeyPairSync('rsa', { modulusLength: 3072 });
    const { n } = publicKey.export({ format: 'jwk' });
    const e = Buffer.alloc(384, 0x7f).toString('base64url');
    const fetch = async () => Buffer.from(JSON.stringify({ keys: [{ kty: 'RSA', n, e, kid: 'k1' }] }));
    const encode = (part: object | Buffer) =>
      Buffer.from(part instanceof Buffer ? part : JSON.stringify(part)).toString('base64url');
    const jwt = `${encode({ alg: 'RS256', kid: 'k1' })}.${encode({ iss: ISSUER })}.${encode(Buffer.alloc(384, 1))}`;
    const troubles: PolicyTrouble[] = [];
    const onTrouble = (trouble: PolicyTrouble) => troubles.push(trouble);
    const outcome = await ask(bearer(jwt), policyText(), { fetch, onTrouble });
    expect(outcome).toMatchObject({ status: 401, code: 'ERR_NGROK_3403' });
    expect(troubles).toMatchObject([{ message: expect.stringMatching(/are ignored: an RSA key .* exponent 65537/) }]);
  });

  it('charges for what a signature takes with each kind of key, and once more for a new key', async () => {
    const spentOn = async (alg: string) => {
      const pair = await generateKeyPair(alg, { extractable: true });
      const set = JSON.stringify({ keys: [{ ...(await exportJWK(pair.publicKey)), kid: 'k1', alg }] });
      const jwt = await new SignJWT({ iss: ISSUER, aud: 'cameras', sub: 'jo' })
        .setProtectedHeader({ alg, kid: 'k1' })
        .setExpirationTime('5m')
        .sign(pair.privateKey);
      const policy = JSON.parse(policyText());
      policy.on_http_request[0].actions[0].config.jws.allowed_algorithms = [alg];
      const time = new RecordedTime();
      const ports = { fetch: async () => Buffer.from(set), processorTime: time };
      const compiled = compilePolicy(JSON.stringify(policy), 'https', { ports });
      const spent: number[] = [];
      for (let times = 0; times < 21; times++) {
        const before = time.spentMs;
        expect(await compiled.onHttpRequest?.(requestFor(bearer(jwt)))).toMatchObject({ status: 200 });
        spent.push(time.spentMs - before);
      }
      const [first = 0, ...next] = spent;
      // Threads that wait for a busy core are measured, too.
      return [first, Math.min(...next)] as const;
    };
    const [quick, slow] = [await spentOn('RS256'), await spentOn('ES512')];
    // P-521 takes twenty times as long as RSA.
    expect(slow[1]).toBeGreaterThan(2 * quick[1]);
    expect(slow[0]).toBeGreaterThan(1.5 * slow[1]);
    for (const [first, next] of [quick, slow]) expect(first).toBeGreaterThan(next);
  });

  it('tries ten keys for a token that names none, and none of them twice', async () => {
    const jwk = await exportJWK(theirs.publicKey);
    const keySetOf = (count: number) => JSON.stringify({ keys: Array(count).fill(jwk) });
    const unnamed = await new SignJWT({}).setProtectedHeader({ alg: 'ES256' }).sign(ours.privateKey);
    const spentOn = async (count: number) => {
      const time = new RecordedTime();
      const fetch = async () => Buffer.from(keySetOf(count));
      const outcome = await ask(bearer(unnamed), policyText(), { fetch, processorTime: time });
      expect(outcome).toMatchObject({ status: 401, code: 'ERR_NGROK_3403' });
      return time.spentMs;
    };
    const [two, ten, all] = [await spentOn(2), await spentOn(10), await spentOn(100)];
    expect(ten).toBeGreaterThan(two);
    expect(all).toBeCloseTo(ten);
  });

  it('fetches few key sets at a time for one payer, who is charged for each', async () => {
    const time = new RecordedTime();
    const pending: (() => void)[] = [];
    const fetch = () =>
      new Promise<Buffer>((resolve) => pending.push(() => resolve(Buffer.from(JSON.stringify({ keys: [] })))));
    const ports = { fetch, processorTime: time };
    const named = ['$', "{'https://idp.example.com/' + req.headers['x-tenant'][0]}"].join('');
    const keys = { sources: { additional_jkus: [named] } };
    const policy = compilePolicy(policyText([HEADER], keys), 'https', { ports });
    const jwt = await token();
    const use = async (tenant: number) =>
      policy.onHttpRequest?.(requestFor({ headers: ['x-tenant', `${tenant}`, 'Authorization', `Bearer ${jwt}`] }));
    const outcomes = Array.from({ length: 20 }, (_, at) => use(at));
    let rejected = 0;
    for (const each of outcomes) each.then(() => (rejected += 1));
    await until(() => rejected === 12, 'rejections');
    expect(pending).toHaveLength(8);
    for (const answer of pending) answer();
    await Promise.all(outcomes);
    expect(pending).toHaveLength(8);
    expect(time.spentMs).toBeGreaterThanOrEqual(16);
  });

  it.each(['at+jwt', 'it+jwt'])('requires the configured token type %s', async (type) => {
    const text = policyText([{ ...HEADER, type }]);
    expect(await ask(bearer(await token()), text)).toMatchObject({ status: 401 });
    expect(await ask(bearer(await token({ typ: type })), text)).toMatchObject({ status: 200 });
  });

  it('accepts any audience when the policy names none, and a prefix in any case', async () => {
    const policy = JSON.parse(policyText());
    policy.on_http_request[0].actions[0].config.audience = undefined;
    const headers = ['Authorization', `bEARER ${await token({ audience: 'lamps' })}`];
    expect(await ask({ headers }, JSON.stringify(policy))).toMatchObject({ status: 200 });
  });

  it('tries all keys for a token that names none, and says why the token is rejected', async () => {
    const keys = [await exportJWK(theirs.publicKey), await exportJWK(ours.publicKey)];
    const fetch = async () => Buffer.from(JSON.stringify({ keys }));
    const unnamed = (claims: JWTPayload) =>
      new SignJWT({ iss: ISSUER, aud: 'cameras', sub: 'jo', ...claims })
        .setProtectedHeader({ alg: 'ES256' })
        .sign(ours.privateKey);
    const now = Math.floor(Date.now() / 1000);
    expect(await ask(bearer(await unnamed({ exp: now + 300 })), policyText(), { fetch })).toMatchObject({
      status: 200,
    });
    expect(await ask(bearer(await unnamed({ exp: now - 300 })), policyText(), { fetch })).toMatchObject({
      message: expect.stringMatching(/expired/),
    });
  });

  it('records the token', async () => {
    const policy = JSON.parse(policyText());
    const body = ['$', '{json.encode(actions.ngrok.jwt_validation)}'].join('');
    policy.on_http_request[1].actions[0].config.body = body;
    const jwt = await token();
    const outcome = await ask(bearer(jwt), JSON.stringify(policy));
    const recorded = outcome?.kind === 'answer' ? JSON.parse(outcome.body.toString()) : null;
    expect(recorded).toMatchObject({
      error: { code: '', message: '' },
      tokens: [
        { location: 'header', location_property: 'authorization', verified: true, signature: jwt.split('.')[2] },
      ],
    });
    expect(recorded.tokens[0]).toMatchObject({ header: { kid: 'k1' }, payload: { sub: 'jo' } });
  });

  it('fails, rather than rejecting the token, when its own configuration has no value', async () => {
    const policy = JSON.parse(policyText());
    policy.on_http_request[0].actions[0].config.issuer.allow_list[0].value = ['$', "{req.headers['x'][0]}"].join('');
    expect(await ask(bearer(await token()), JSON.stringify(policy))).toMatchObject({ status: 500 });
  });

  it('requires every listed token', async () => {
    const text = policyText([HEADER, { type: 'jwt', method: 'header', name: 'X-Second' }]);
    const headers = ['Authorization', `Bearer ${await token()}`];
    expect(await ask({ headers }, text)).toMatchObject({ status: 401, code: 'ERR_NGROK_3408' });
    const both = [...headers, 'x-second', await token()];
    expect(await ask({ headers: both }, text)).toMatchObject({ status: 200 });
  });

  it.each<[string, FakeRequest, string]>([
    ['no header', {}, '3408'],
    ['no prefix', { headers: ['Authorization', 'abc'] }, '3413'],
    ['nothing after the prefix', { headers: ['Authorization', 'Bearer '] }, '3406'],
    ['two headers', { headers: ['Authorization', 'Bearer a.b.c', 'authorization', 'Bearer d.e.f'] }, '3416'],
    ['rubbish', bearer('abc'), '3416'],
    ['a token of more than 16 KiB', bearer(`a.${'b'.repeat(16_384)}.c`), '3416'],
    ['more than three parts', bearer('a.b.c.d'), '3416'],
    ['rubbish in three parts', bearer('a.b.c'), '3416'],
  ])('rejects %s', async (_, fake, code) => {
    expect(await ask(fake)).toMatchObject({ status: 401, code: `ERR_NGROK_${code}` });
  });

  describe('with tokens in a body', () => {
    const text = policyText([{ type: 'jwt', method: 'body', name: 'Token' }]);
    const json = ['Content-Type', 'application/json'];

    it('reads JSON and forms', async () => {
      const jwt = await token();
      const form = ['Content-Type', 'application/x-www-form-urlencoded; charset=utf-8'];
      expect(await ask({ method: 'POST', headers: json, body: JSON.stringify({ token: jwt }) }, text)).toMatchObject({
        status: 200,
      });
      for (const method of ['PUT', 'PATCH']) {
        expect(await ask({ method, headers: form, body: `a=1&token=${jwt}` }, text)).toMatchObject({ status: 200 });
      }
    });

    it.each([
      ['JSON', json, (jwt: string) => `{"token": "${jwt}", "TOKEN": "other"}`],
      ['JSON, with a number', json, (jwt: string) => `{"token": "${jwt}", "Token": 5}`],
      ['JSON, with one name', json, (jwt: string) => `{"token": "other", "token" : "${jwt}"}`],
      [
        'JSON, with escapes',
        json,
        (jwt: string) => `{"a": {"b": ["token"]}, "t\\u006fken": "other", "token": "${jwt}"}`,
      ],
      ['a form', ['Content-Type', 'application/x-www-form-urlencoded'], (jwt: string) => `token=${jwt}&TOKEN=other`],
    ])('rejects two tokens in %s', async (_, headers, bodyFor) => {
      const body = bodyFor(await token());
      expect(await ask({ method: 'POST', headers, body }, text)).toMatchObject({ code: 'ERR_NGROK_3416' });
    });

    it('accepts one token beside others of the same name deeper in the JSON', async () => {
      const body = `{"a": {"token": "x:"}, "b": "\\"token\\":", "token": "${await token()}"}`;
      expect(await ask({ method: 'POST', headers: json, body }, text)).toMatchObject({ status: 200 });
    });

    it.each<[string, FakeRequest, string]>([
      ['another method', { method: 'GET', headers: json }, '3415'],
      ['another type', { method: 'POST', headers: ['Content-Type', 'text/plain'], body: 'x' }, '3414'],
      ['no body', { method: 'POST', headers: json }, '3411'],
      ['a body without it', { method: 'POST', headers: json, body: '{"token": 5}' }, '3412'],
      ['a body that is no object', { method: 'POST', headers: json, body: 'null' }, '3412'],
      ['a body that is a text', { method: 'POST', headers: json, body: '"token"' }, '3412'],
      ['a body that is no JSON', { method: 'POST', headers: json, body: '{' }, '3412'],
      ['a long body', { method: 'POST', headers: json, body: ' '.repeat(70_000) }, '3411'],
    ])('rejects %s', async (_, fake, code) => {
      expect(await ask(fake, text)).toMatchObject({ status: 401, code: `ERR_NGROK_${code}` });
    });
  });

  it('fetches a key set once for many requests, and again when a new key is used', async () => {
    let fetched = 0;
    let ms = 0;
    const clock = { ...systemClock, now: () => ms };
    let published = keySet;
    const fetch = async () => {
      fetched++;
      return Buffer.from(published);
    };
    const policy = compilePolicy(policyText(), 'https', { ports: { fetch, clock } });
    const use = async (value: string) => policy.onHttpRequest?.(requestFor(bearer(value)));
    const jwt = await token();
    const outcomes = await Promise.all(Array.from({ length: 20 }, () => use(jwt)));
    expect(outcomes.every((outcome) => outcome?.kind === 'answer')).toBe(true);
    expect(fetched).toBe(1);

    published = JSON.stringify({ keys: [{ ...(await exportJWK(theirs.publicKey)), kid: 'k2', alg: 'ES256' }] });
    const rolled = await token({ kid: 'k2', key: theirs });
    for (let times = 0; times < 5; times++) expect(await use(rolled)).toMatchObject({ status: 401 });
    expect(fetched).toBe(1); // at most once a minute
    ms += 61_000;
    expect(await use(rolled)).toMatchObject({ status: 200 });
    expect(fetched).toBe(2);
    ms += 16 * 60_000;
    await use(rolled);
    expect(fetched).toBe(3);
  });

  it('keeps the cached keys while a newer set cannot be fetched', async () => {
    let ms = 0;
    let answers: Promise<Buffer> = Promise.resolve(Buffer.from(keySet));
    const policy = compilePolicy(policyText(), 'https', {
      ports: { fetch: () => answers, clock: { ...systemClock, now: () => ms } },
    });
    const use = async (value: string) => policy.onHttpRequest?.(requestFor(bearer(value)));
    const jwt = await token();
    expect(await use(jwt)).toMatchObject({ status: 200 });
    ms += 61_000;
    let fail: (reason: Error) => void = () => {};
    answers = new Promise((_, reject) => {
      fail = reject;
    });
    const strange = use(await token({ kid: 'k9', key: theirs }));
    expect(await use(jwt)).toMatchObject({ status: 200 });
    fail(new Error('timed out'));
    expect(await strange).toMatchObject({ status: 401 });
    expect(await use(jwt)).toMatchObject({ status: 200 });
  });

  it('fetches a key set that failed again after ten seconds', async () => {
    let fetched = 0;
    let ms = 0;
    const fetch = async () => {
      if (fetched++ === 0) throw new Error('timed out');
      return Buffer.from(keySet);
    };
    const policy = compilePolicy(policyText(), 'https', {
      ports: { fetch, clock: { ...systemClock, now: () => ms } },
    });
    const jwt = await token();
    const use = async () => policy.onHttpRequest?.(requestFor(bearer(jwt)));
    expect(await use()).toMatchObject({ status: 401 });
    ms = 9_999;
    expect(await use()).toMatchObject({ status: 401 });
    expect(fetched).toBe(1);
    ms = 10_000;
    expect(await use()).toMatchObject({ status: 200 });
    expect(fetched).toBe(2);
  });

  it.each([
    ['cannot be fetched', () => Promise.reject(new Error('timed out'))],
    ['is no key set', async () => Buffer.from('<html>')],
    ['is full of rubbish', async () => Buffer.from('{"keys":[{"kty":"nope","kid":"k1"}]}')],
  ])('rejects the token when the key set %s', async (_, fetch) => {
    expect(await ask(bearer(await token()), policyText(), { fetch })).toMatchObject({ status: 401 });
  });
});
