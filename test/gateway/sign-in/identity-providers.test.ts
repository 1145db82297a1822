import { exportJWK, generateKeyPair, type JWTPayload, SignJWT } from 'jose';
import { beforeAll, describe, expect, it } from 'vitest';
import { IdentityProviders } from '../../../src/gateway/sign-in/create-sign-in.ts';
import type { Attempt } from '../../../src/traffic-policy/sign-in/identity-provider.ts';
import { personOf } from '../../../src/traffic-policy/sign-in/provider-presets.ts';

const ISSUER = 'https://idp.example.com';
const CLIENT = { place: { issuer: ISSUER, person: personOf }, clientId: 'cam', clientSecret: 'secret' };
const METADATA = {
  issuer: ISSUER,
  authorization_endpoint: `${ISSUER}/authorize`,
  token_endpoint: `${ISSUER}/token`,
  jwks_uri: `${ISSUER}/jwks`,
  token_endpoint_auth_methods_supported: ['client_secret_basic'],
};
const ATTEMPT: Attempt = { state: 's', nonce: 'n', verifier: 'v'.repeat(43), target: '/', startedAt: 0 };
const CALLBACK = new URL('https://cam.example.com/ngrok/oidc/callback?code=c&state=s');

let ours: Awaited<ReturnType<typeof generateKeyPair>>;
let theirs: typeof ours;
beforeAll(async () => {
  [ours, theirs] = await Promise.all([generateKeyPair('RS256'), generateKeyPair('RS256')]);
});

/** Providers that are reached by a script: what a path answers, or why it does not. */
function reach(answers: Record<string, unknown>) {
  const asked: string[] = [];
  const clock = { now: 0 };
  const send = async (url: string) => {
    const path = new URL(url).pathname;
    asked.push(path);
    const answer = answers[path];
    if (answer instanceof Error || answer === undefined) throw answer ?? new Error('not found');
    const body = Buffer.from(typeof answer === 'string' ? answer : JSON.stringify(answer));
    return { status: 200, headers: { 'content-type': 'application/json' }, body };
  };
  const providers = new IdentityProviders(send, () => clock.now);
  return { asked, clock, answers, provider: () => providers.of(CLIENT, () => {}, 'cr_1') };
}

const DISCOVERY = '/.well-known/openid-configuration';

describe('identity providers', () => {
  it('are asked once an hour how they are used, and used for longer while they do not answer', async () => {
    const { asked, clock, answers, provider } = reach({ [DISCOVERY]: METADATA });
    const [one, other] = await Promise.all([provider(), provider()]);
    expect(one).toBe(other);
    answers[DISCOVERY] = new Error('connection refused');
    clock.now += 3_600_001;
    expect(await provider()).toBe(one);
    await expect.poll(() => asked.length).toBe(2);
    expect(await provider()).toBe(one);
    answers[DISCOVERY] = METADATA;
    const later = () => {
      clock.now += 10_001;
      return provider();
    };
    await expect.poll(later).not.toBe(one);
  });

  it('are asked again after 10 seconds when they did not answer at first', async () => {
    const { asked, clock, answers, provider } = reach({});
    for (let times = 0; times < 2; times++) await expect(provider()).rejects.toMatchObject({ status: 502 });
    expect(asked).toHaveLength(1);
    answers[DISCOVERY] = METADATA;
    clock.now += 10_001;
    await expect(provider()).resolves.toBeDefined();
  });

  it.each<[string, unknown]>([
    ['describes another issuer', { ...METADATA, issuer: 'https://evil.example' }],
    ['describes itself in HTML', '<html>'],
    ['describes nothing', {}],
  ])('are rejected when one %s', async (_, document) => {
    await expect(reach({ [DISCOVERY]: document }).provider()).rejects.toMatchObject({ code: 'ERR_NGROK_5208' });
  });

  it.each<[string, unknown]>([
    ['is missing', undefined],
    ['lacks TLS', 'http://idp.example.com/authorize'],
    ['is no URL', 'javascript:alert(1)'],
  ])('lead nobody to a page that %s', async (_, authorization_endpoint) => {
    const provider = await reach({ [DISCOVERY]: { ...METADATA, authorization_endpoint } }).provider();
    expect(() => provider.authorizationUrl({})).toThrow(expect.objectContaining({ code: 'ERR_NGROK_5208' }));
  });
});

describe('the token of a provider', () => {
  const HOUR = 3600;
  const now = () => Math.floor(Date.now() / 1000);

  async function redeem(claims: JWTPayload, { isForged = false, alg = 'RS256' } = {}) {
    const token = await new SignJWT({
      iss: ISSUER,
      aud: 'cam',
      sub: 'jo',
      nonce: 'n',
      iat: now(),
      exp: now() + HOUR,
      ...claims,
    })
      .setProtectedHeader({ alg, kid: 'k' })
      .sign(alg === 'HS256' ? Buffer.from('secret'.repeat(8)) : (isForged ? theirs : ours).privateKey);
    const { provider } = reach({
      [DISCOVERY]: METADATA,
      '/token': { access_token: 'at', token_type: 'Bearer', id_token: token },
      '/jwks': { keys: [{ ...(await exportJWK(ours.publicKey)), kid: 'k', alg: 'RS256', use: 'sig' }] },
    });
    return (await provider()).redeem(CALLBACK, ATTEMPT, { clientIp: '203.0.113.7' });
  }

  it('says who somebody is', async () => {
    await expect(redeem({ email: 'jo@example.com', name: 'Jo' })).resolves.toMatchObject({
      subject: 'jo',
      email: 'jo@example.com',
      name: 'Jo',
    });
  });

  it.each<[string, JWTPayload, { isForged?: boolean; alg?: string }]>([
    ['is signed with another key', {}, { isForged: true }],
    ['is signed with the secret of the client', {}, { alg: 'HS256' }],
    ['is for another client', { aud: 'door' }, {}],
    ['is of another issuer', { iss: 'https://evil.example' }, {}],
    ['has another nonce', { nonce: 'other' }, {}],
    ['has expired more than 3 minutes ago', { exp: now() - 200 }, {}],
    ['names nobody', { sub: undefined as never }, {}],
  ])('signs nobody in when it %s', async (_, claims, how) => {
    await expect(redeem(claims, how)).rejects.toMatchObject({ status: 403, code: 'ERR_NGROK_5204' });
  });
});
