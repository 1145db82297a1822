/** What real providers answer, as they document it, reduced to what a client has to cope with. */
import { exportJWK, generateKeyPair, type JWTPayload, SignJWT } from 'jose';
import { beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { connectToProvider } from '../../../src/gateway/sign-in/open-id-client.ts';
import type { requestPublic } from '../../../src/traffic-policy/fetch-document.ts';
import { ClientLeft } from '../../../src/traffic-policy/policy-errors.ts';
import type { Attempt, ProviderPlace, SignedIn } from '../../../src/traffic-policy/sign-in/identity-provider.ts';
import { PROVIDER_PRESETS, personOf } from '../../../src/traffic-policy/sign-in/provider-presets.ts';
import { until } from '../../support/until.ts';

const CLIENT = { clientIp: '203.0.113.7' };

interface Provider {
  place: ProviderPlace;
  discovery: Record<string, unknown> & { issuer: string; token_endpoint: string; jwks_uri: string };
  alg: string;
  /** Of ID tokens; `iss` is that of the document, unless it is here. */
  claims: JWTPayload;
  /** What comes with the tokens. */
  token: object;
  /** Further parameters with which browsers return. */
  returned: Record<string, string>;
  userInfo?: object;
  person: object;
}

const openId = (issuer: string): ProviderPlace => ({ issuer, person: personOf });

const KEYCLOAK = 'https://keycloak.example.com/realms/devices';
const DEX = 'https://dex.example.com/dex';
const AUTH0 = 'https://tenant.eu.auth0.com/';
const TENANT = '9188040d-6c67-4c5b-b112-36a304b66dad';
const ENTRA = 'https://login.microsoftonline.com';

const PROVIDERS: Record<string, Provider> = {
  Keycloak: {
    place: openId(KEYCLOAK),
    discovery: {
      issuer: KEYCLOAK,
      authorization_endpoint: `${KEYCLOAK}/protocol/openid-connect/auth`,
      token_endpoint: `${KEYCLOAK}/protocol/openid-connect/token`,
      userinfo_endpoint: `${KEYCLOAK}/protocol/openid-connect/userinfo`,
      jwks_uri: `${KEYCLOAK}/protocol/openid-connect/certs`,
      id_token_signing_alg_values_supported: ['PS384', 'RS256', 'ES256', 'HS256', 'EdDSA'],
      token_endpoint_auth_methods_supported: ['private_key_jwt', 'client_secret_basic', 'client_secret_post'],
      authorization_response_iss_parameter_supported: true,
    },
    alg: 'RS256',
    claims: { azp: 'cam', typ: 'ID', sid: 'a', acr: '1', name: 'Jo', email: 'jo@example.com', email_verified: true },
    token: {
      expires_in: 300,
      refresh_expires_in: 1800,
      refresh_token: 'r1',
      'not-before-policy': 0,
      session_state: 'a',
    },
    returned: { session_state: 'a', iss: KEYCLOAK },
    person: { email: 'jo@example.com', name: 'Jo' },
  },
  'Keycloak with an audience of another client': {
    place: openId(KEYCLOAK),
    discovery: {
      issuer: KEYCLOAK,
      token_endpoint: `${KEYCLOAK}/protocol/openid-connect/token`,
      jwks_uri: `${KEYCLOAK}/protocol/openid-connect/certs`,
      id_token_signing_alg_values_supported: ['RS256', 'EdDSA'],
    },
    alg: 'EdDSA',
    claims: {
      aud: ['cam', 'account'],
      azp: 'cam',
      preferred_username: 'jo',
      email_verified: false,
      email: 'jo@example.com',
    },
    token: {},
    returned: {},
    person: { email: '', name: 'jo' },
  },
  Dex: {
    place: openId(DEX),
    discovery: {
      issuer: DEX,
      authorization_endpoint: `${DEX}/auth`,
      token_endpoint: `${DEX}/token`,
      userinfo_endpoint: `${DEX}/userinfo`,
      jwks_uri: `${DEX}/keys`,
      id_token_signing_alg_values_supported: ['RS256'],
      token_endpoint_auth_methods_supported: ['client_secret_basic', 'client_secret_post'],
    },
    alg: 'RS256',
    claims: {
      sub: 'CgcyMzQyNzQ5EgZnaXRodWI',
      at_hash: 'x',
      c_hash: 'y',
      email: 'jo@example.com',
      email_verified: true,
      name: 'Jo',
    },
    token: { token_type: 'bearer', expires_in: 86_399 },
    returned: {},
    person: { subject: 'CgcyMzQyNzQ5EgZnaXRodWI', email: 'jo@example.com' },
  },
  Google: {
    place: PROVIDER_PRESETS.google.place,
    discovery: {
      issuer: 'https://accounts.google.com',
      authorization_endpoint: 'https://accounts.google.com/o/oauth2/v2/auth',
      token_endpoint: 'https://oauth2.googleapis.com/token',
      userinfo_endpoint: 'https://openidconnect.googleapis.com/v1/userinfo',
      jwks_uri: 'https://www.googleapis.com/oauth2/v3/certs',
      token_endpoint_auth_methods_supported: ['client_secret_post', 'client_secret_basic'],
    },
    alg: 'RS256',
    claims: { azp: 'cam', hd: 'example.com', email: 'jo@example.com', email_verified: true, name: 'Jo' },
    token: { expires_in: 3599, scope: 'https://www.googleapis.com/auth/userinfo.email openid' },
    returned: { scope: 'email openid', authuser: '0', hd: 'example.com', prompt: 'consent' },
    person: { email: 'jo@example.com' },
  },
  'Microsoft, whose document stands for all tenants': {
    place: PROVIDER_PRESETS.microsoft.place,
    discovery: {
      issuer: `${ENTRA}/{tenantid}/v2.0`,
      authorization_endpoint: `${ENTRA}/common/oauth2/v2.0/authorize`,
      token_endpoint: `${ENTRA}/common/oauth2/v2.0/token`,
      userinfo_endpoint: 'https://graph.microsoft.com/oidc/userinfo',
      jwks_uri: `${ENTRA}/common/discovery/v2.0/keys`,
      token_endpoint_auth_methods_supported: ['client_secret_post', 'private_key_jwt'],
    },
    alg: 'RS256',
    claims: {
      ...{ iss: `${ENTRA}/${TENANT}/v2.0`, tid: TENANT, oid: 'o', ver: '2.0', name: 'Jo' },
      ...{ email: 'claimed@example.org', preferred_username: 'jo@example.com' },
    },
    token: { expires_in: 4999, ext_expires_in: 4999 },
    returned: { session_state: 'a' },
    person: { email: 'jo@example.com', name: 'Jo' },
  },
  'Auth0, whose issuer ends in a slash': {
    place: openId(AUTH0),
    discovery: { issuer: AUTH0, token_endpoint: `${AUTH0}oauth/token`, jwks_uri: `${AUTH0}.well-known/jwks.json` },
    alg: 'RS256',
    claims: { sub: 'auth0|5f7c', email: 'jo@example.com', email_verified: true, name: 'Jo' },
    token: { expires_in: 86_400 },
    returned: {},
    person: { subject: 'auth0|5f7c' },
  },
  'Cognito, where email_verified is a text': {
    place: openId('https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_abc'),
    discovery: {
      issuer: 'https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_abc',
      token_endpoint: 'https://devices.auth.eu-west-1.amazoncognito.com/oauth2/token',
      userinfo_endpoint: 'https://devices.auth.eu-west-1.amazoncognito.com/oauth2/userInfo',
      jwks_uri: 'https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_abc/.well-known/jwks.json',
    },
    alg: 'RS256',
    claims: { token_use: 'id' },
    token: { expires_in: 3600 },
    returned: {},
    userInfo: { email: 'jo@example.com', email_verified: 'true', name: 'Jo' },
    person: { email: 'jo@example.com', name: 'Jo' },
  },
  'a provider with keys of elliptic curves, without email_verified': {
    place: openId('https://login.example.com'),
    discovery: {
      issuer: 'https://login.example.com',
      token_endpoint: 'https://login.example.com/token',
      jwks_uri: 'https://login.example.com/keys',
      id_token_signing_alg_values_supported: ['ES256'],
    },
    alg: 'ES256',
    claims: { email: 'jo@example.com' },
    token: {},
    returned: {},
    person: { email: 'jo@example.com' },
  },
};

type Keys = Awaited<ReturnType<typeof generateKeyPair>>;
/** By their algorithm; the provider with elliptic curves gets another one. */
const keys: Record<string, Keys> = {};
let later: Keys;
beforeAll(async () => {
  for (const alg of ['RS256', 'ES256', 'EdDSA']) keys[alg] = await generateKeyPair(alg);
  later = await generateKeyPair('ES256');
});

const ATTEMPT: Attempt = { state: 's', nonce: 'n', verifier: 'v'.repeat(43), target: '/', startedAt: 0 };

interface Response {
  status?: number;
  type?: string;
  challenge?: string;
  body: unknown;
}

/** A provider that answers as recorded, or has another issuer; a test can change each answer, by URL. */
async function recorded(name: string, other: { place?: ProviderPlace; issuer?: string; discovery?: object } = {}) {
  const provider = PROVIDERS[name] as Provider;
  const { place = provider.place, issuer = provider.discovery.issuer } = other;
  const discovery: Provider['discovery'] = { ...provider.discovery, issuer, ...other.discovery };
  const { alg, claims, token, returned, userInfo } = provider;
  const { token_endpoint, jwks_uri } = discovery;
  const now = Math.floor(Date.now() / 1000);
  const usual = { iss: discovery.issuer, aud: 'cam', sub: 'jo', nonce: 'n', iat: now, exp: now + 300, ...claims };
  const idToken = (key = keys[alg], kid = 'k1', more: JWTPayload = {}) =>
    new SignJWT({ ...usual, ...more }).setProtectedHeader({ alg, kid }).sign((key as Keys).privateKey);
  const jwk = async (key = keys[alg], kid = 'k1') => ({
    ...(await exportJWK((key as Keys).publicKey)),
    kid,
    use: 'sig',
  });
  const tokens = { access_token: 'at', token_type: 'Bearer', ...token };
  const answers: Record<string, Response> = {
    [`${place.issuer.replace(/\/$/, '')}/.well-known/openid-configuration`]: {
      body: { authorization_endpoint: `${place.issuer}/authorize`, ...discovery },
    },
    [token_endpoint]: { body: { ...tokens, id_token: await idToken() } },
    [jwks_uri]: {
      body: { keys: [{ kty: 'RSA', use: 'enc', kid: 'e', alg: 'RSA-OAEP', n: 'AQ', e: 'AQAB' }, await jwk()] },
    },
    [String(discovery.userinfo_endpoint)]: { body: { sub: usual.sub, ...userInfo } },
  };
  const asked: string[] = [];
  const send = async (url: string) => {
    asked.push(url);
    const {
      status = 200,
      type = 'application/json',
      challenge,
      body,
    }: Response = answers[url] ?? { status: 404, body: {} };
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    return {
      status,
      headers: { 'content-type': type, ...(challenge && { 'www-authenticate': challenge }) },
      body: Buffer.from(text),
    };
  };
  const connected = await connectToProvider({ place, clientId: 'cam', clientSecret: 'secret' }, send);
  const callback = new URL('https://cam.example.com/ngrok/oidc/callback?code=c&state=s');
  for (const [member, value] of Object.entries(returned)) callback.searchParams.set(member, value);
  const redeem = (at = callback) => connected.redeem(at, ATTEMPT, CLIENT);
  const renew = (known: SignedIn) => connected.renew(known, CLIENT);
  return { provider, answers, asked, callback, tokens, idToken, jwk, redeem, renew, token_endpoint, jwks_uri };
}

describe('answers of providers', () => {
  it.each(Object.keys(PROVIDERS))('sign people in: %s', async (name) => {
    const { provider, redeem } = await recorded(name);
    await expect(redeem()).resolves.toMatchObject({ subject: provider.claims.sub ?? 'jo', ...provider.person });
  });

  it.each([
    ['https://authentik.example.com/application/o/cam', 'https://authentik.example.com/application/o/cam/'],
    ['https://authentik.example.com/application/o/cam/', 'https://authentik.example.com/application/o/cam'],
    ['https://tenant.eu.auth0.com', AUTH0],
  ])('sign people in when the policy has the issuer %s, and the document %s', async (named, issuer) => {
    const { redeem } = await recorded('Auth0, whose issuer ends in a slash', { place: openId(named), issuer });
    await expect(redeem()).resolves.toMatchObject({ subject: 'auth0|5f7c' });
  });

  /** What a provider with user info says there, when its ID token has neither email nor name. */
  async function lenient(userInfo: object | undefined, more: JWTPayload = {}) {
    const at = await recorded('Dex');
    const claims = { email: undefined, name: undefined, email_verified: undefined, ...more };
    at.answers[at.token_endpoint] = { body: { ...at.tokens, id_token: await at.idToken(undefined, 'k1', claims) } };
    at.answers[`${DEX}/userinfo`] = { body: { sub: at.provider.claims.sub, ...userInfo } };
    return at;
  }

  const JO = { email: 'jo@example.com', email_verified: true, name: 'Jo', preferred_username: 'jo' };

  it.each<[string, object, object]>([
    ['no name', { name: null }, { email: 'jo@example.com', name: 'jo' }],
    ['no name of either kind', { name: null, preferred_username: null }, { email: 'jo@example.com', name: '' }],
    ['a name that is no text', { name: { first: 'Jo' } }, { email: 'jo@example.com', name: 'jo' }],
    ['no email', { email: null }, { email: '', name: 'Jo' }],
    ['several emails', { email: ['jo@example.com'] }, { email: '', name: 'Jo' }],
    ['nothing about the email', { email_verified: null }, { email: 'jo@example.com' }],
    ['1 about the email', { email_verified: 1 }, { email: 'jo@example.com' }],
    ['True about the email', { email_verified: 'True' }, { email: 'jo@example.com' }],
    ['0 about the email', { email_verified: 0 }, { email: '' }],
    ['false as a text', { email_verified: 'false' }, { email: '' }],
    ['something unknown about the email', { email_verified: { at: 1 } }, { email: '' }],
    ['further members without values', { picture: null, address: null }, { email: 'jo@example.com', name: 'Jo' }],
    ['no subject', { sub: undefined }, { email: 'jo@example.com', name: 'Jo' }],
    ['null as the subject', { sub: null }, { email: 'jo@example.com', name: 'Jo' }],
  ])('sign people in whose user info has %s', async (_, userInfo, person) => {
    const { redeem } = await lenient({ ...JO, ...userInfo });
    await expect(redeem()).resolves.toMatchObject({ subject: 'CgcyMzQyNzQ5EgZnaXRodWI', ...person });
  });

  it('sign people in whose ID token has claims without values, which the user info then tells', async () => {
    const claims = { email: null, name: null, email_verified: null, preferred_username: null };
    const told = await lenient(JO, claims as unknown as JWTPayload);
    await expect(told.redeem()).resolves.toMatchObject({ email: 'jo@example.com', name: 'Jo' });
    const untold = await lenient({ email: null }, { ...claims, email: 'jo@example.com' } as unknown as JWTPayload);
    await expect(untold.redeem()).resolves.toMatchObject({ email: 'jo@example.com', name: '' });
  });

  it('sign people in whose user info has the subject as a number', async () => {
    const { redeem } = await lenient({ ...JO, sub: 42 }, { sub: '42' });
    await expect(redeem()).resolves.toMatchObject({ subject: '42', name: 'Jo' });
  });

  it('sign nobody in whose user info is about somebody else', async () => {
    const { redeem } = await lenient({ ...JO, sub: 'ann' });
    await expect(redeem()).rejects.toMatchObject({ status: 403, code: 'ERR_NGROK_5204' });
  });

  it.each([401, 403, 404])('sign people in by their ID token when the user info answers %i', async (status) => {
    const { answers, redeem } = await lenient({}, { preferred_username: 'jo' });
    answers[`${DEX}/userinfo`] = { status, body: '' };
    await expect(redeem()).resolves.toMatchObject({ email: '', name: 'jo' });
  });

  it.each([429, 500])('sign nobody in when the user info answers %i: it may be there later', async (status) => {
    const { answers, redeem } = await lenient({});
    answers[`${DEX}/userinfo`] = { status, body: '' };
    await expect(redeem()).rejects.toMatchObject({ status: 502, code: 'ERR_NGROK_3160' });
  });

  it.each<[string, object]>([
    ['no type', { token_type: undefined }],
    ['a type of null', { token_type: null }],
    ['a type of its own', { token_type: 'JWT' }],
    ['a time of null', { expires_in: null }],
    ['an empty time', { expires_in: '' }],
    ['a time below 0', { expires_in: -1 }],
    ['a time as a text', { expires_in: '3600' }],
    ['a refresh token of null', { refresh_token: null }],
    ['an empty refresh token', { refresh_token: '' }],
    ['a list of scopes', { scope: ['openid', 'email'] }],
    ['scopes of null', { scope: null }],
    ['an error of null', { error: null, error_description: null }],
  ])('sign people in whose tokens come with %s', async (_, more) => {
    const { answers, tokens, idToken, redeem, token_endpoint } = await recorded('Dex');
    answers[token_endpoint] = { body: { ...tokens, id_token: await idToken(), ...more } };
    await expect(redeem()).resolves.toMatchObject({ email: 'jo@example.com', name: 'Jo' });
  });

  it.each<[string, (tokens: Record<string, string>) => Response]>([
    ['as text/plain', (tokens) => ({ type: 'text/plain', body: tokens })],
    ['as a form', (tokens) => ({ type: 'application/x-www-form-urlencoded', body: `${new URLSearchParams(tokens)}` })],
    ['with a byte order mark', (tokens) => ({ body: `\ufeff${JSON.stringify(tokens)}` })],
    ['with status 201', (tokens) => ({ status: 201, body: tokens })],
  ])('sign people in whose tokens come %s', async (_, answer) => {
    const { answers, tokens, idToken, redeem, token_endpoint } = await recorded('Dex');
    answers[token_endpoint] = answer({ ...(tokens as object), id_token: await idToken() });
    await expect(redeem()).resolves.toMatchObject({ email: 'jo@example.com', name: 'Jo' });
  });

  it('sign people in at a provider that describes itself with members of null', async () => {
    const { redeem } = await recorded('Auth0, whose issuer ends in a slash', {
      discovery: { userinfo_endpoint: null, token_endpoint_auth_methods_supported: null, mtls_endpoint_aliases: null },
    });
    await expect(redeem()).resolves.toMatchObject({ subject: 'auth0|5f7c' });
  });

  it('sign people in with keys that came later', async () => {
    const { answers, asked, tokens, idToken, jwk, redeem, token_endpoint, jwks_uri } = await recorded(
      'a provider with keys of elliptic curves, without email_verified',
    );
    await redeem();
    answers[jwks_uri] = { body: { keys: [await jwk(later, 'k2')] } };
    answers[token_endpoint] = { body: { ...tokens, id_token: await idToken(later, 'k2') } };
    // Keys are asked for once a minute at most, whatever tokens name.
    await expect(redeem()).rejects.toMatchObject({ code: 'ERR_NGROK_5204' });
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 61_000 });
    onTestFinished(() => void vi.useRealTimers());
    await expect(redeem()).resolves.toMatchObject({ email: 'jo@example.com' });
    expect(asked.filter((url) => url === jwks_uri)).toHaveLength(2);
  });

  it('sign nobody in with a key whose signatures take long to check', async () => {
    const { answers, redeem, jwk, jwks_uri } = await recorded('Keycloak');
    const slow = { ...(await jwk()), e: Buffer.alloc(256, 0x7f).toString('base64url') };
    answers[jwks_uri] = { body: { keys: [slow] } };
    await expect(redeem()).rejects.toMatchObject({
      ...{ status: 502, code: 'ERR_NGROK_3160' },
      detail: expect.stringMatching(/certs are not used: an RSA key must have .* the exponent 65537/),
    });
    answers[jwks_uri] = { body: { keys: [slow, await jwk()] } };
    await expect(redeem()).resolves.toMatchObject({ name: 'Jo' });
  });

  it('keep the refresh token when they bring no other one, and the person when they bring no ID token', async () => {
    const { answers, tokens, redeem, renew, token_endpoint } = await recorded('Keycloak');
    const known = await redeem();
    expect(known.tokens.refresh).toBe('r1');
    const { refresh_token: _, ...rest } = { refresh_token: '', ...tokens };
    answers[token_endpoint] = { body: { ...rest, access_token: 'at2' } };
    answers[`${KEYCLOAK}/protocol/openid-connect/userinfo`] = {
      body: { sub: 'jo', email: 'new@example.com', email_verified: true, name: 'Jo' },
    };
    const renewed = await renew(known);
    expect(renewed).toMatchObject({ subject: 'jo', email: 'new@example.com' });
    expect(renewed.tokens).toMatchObject({ access: 'at2', refresh: 'r1' });
  });

  it('sign people in with a token for this client alone, as a list of one', async () => {
    const { answers, tokens, idToken, redeem, token_endpoint } = await recorded('Keycloak');
    const alone = await idToken(undefined, 'k1', { aud: ['cam'], azp: undefined });
    answers[token_endpoint] = { body: { ...tokens, id_token: alone } };
    await expect(redeem()).resolves.toMatchObject({ subject: 'jo' });
  });

  it.each<[string, string, JWTPayload]>([
    ['for several audiences without azp', 'Keycloak', { aud: ['cam', 'account'], azp: undefined }],
    ['with an azp of another client', 'Keycloak', { aud: ['cam', 'account'], azp: 'account' }],
    ['of another tenant than it names', 'Microsoft, whose document stands for all tenants', { tid: 'another' }],
  ])('sign nobody in with a token %s', async (_, name, more) => {
    const { answers, tokens, idToken, redeem, token_endpoint } = await recorded(name);
    answers[token_endpoint] = { body: { ...tokens, id_token: await idToken(undefined, 'k1', more) } };
    await expect(redeem()).rejects.toMatchObject({ status: 403, code: 'ERR_NGROK_5204' });
  });

  const invalidGrant = (description: string, more = {}) => ({
    body: { error: 'invalid_grant', error_description: description, ...more },
  });

  it.each<[string, Partial<Response>, number, string]>([
    ['Keycloak: a code used again', { status: 400, ...invalidGrant('Code not valid') }, 400, '3122'],
    ['Google: a code used again', { status: 400, ...invalidGrant('Bad Request') }, 400, '3122'],
    ['Microsoft: one', { status: 400, ...invalidGrant('AADSTS54005: …', { error_codes: [54_005] }) }, 400, '3122'],
    ['Dex: an unknown code', { status: 400, body: { error: 'invalid_request' } }, 502, '3125'],
    ['Keycloak: a wrong secret', { status: 401, body: { error: 'unauthorized_client' } }, 502, '3125'],
    [
      'Microsoft: a wrong secret',
      { status: 401, body: { error: 'invalid_client', error_description: 'AADSTS7000215: …' } },
      502,
      '3125',
    ],
    [
      'a wrong secret, as RFC 6749 has it',
      { status: 401, challenge: 'Basic realm="idp"', body: { error: 'invalid_client' } },
      502,
      '3125',
    ],
    ['a proxy: an error page', { status: 502, type: 'text/html', body: '<h1>Bad Gateway</h1>' }, 502, '3160'],
    ['a page to sign in at a proxy', { type: 'text/html', body: '<form>' }, 502, '3160'],
    ['nothing', { body: '' }, 502, '3160'],
    ['GitHub: a code used again, with status 200', { body: { error: 'bad_verification_code' } }, 400, '3122'],
  ])('that are errors have a page of their own: %s', async (_, answer, status, code) => {
    const { answers, redeem, token_endpoint } = await recorded('Dex');
    answers[token_endpoint] = { body: '', ...answer };
    await expect(redeem()).rejects.toMatchObject({ status, code: `ERR_NGROK_${code}` });
  });

  const refusal: Partial<Response> = { status: 401, challenge: 'Bearer error="invalid_token"', body: '' };
  const refusalOfDex: Partial<Response> = {
    status: 403,
    body: { error: 'access_denied', error_description: 'Invalid bearer token.' },
  };

  it.each([
    ['as RFC 6750 has it', refusal],
    ['as Dex does', refusalOfDex],
    ['without saying why', { status: 401, body: '' }],
  ])('that refuse the token of a person end the session: %s', async (_, answer) => {
    const { answers, redeem, renew } = await recorded('Dex');
    const known = await redeem();
    answers[`${DEX}/userinfo`] = { body: '', ...answer };
    await expect(renew(known)).rejects.toMatchObject({ status: 403, code: 'ERR_NGROK_3151', isOutage: false });
  });

  it('of Dex end the session with a refresh token that it has revoked, but not when it fails', async () => {
    const { answers, idToken, tokens, redeem, renew, token_endpoint } = await recorded('Dex');
    answers[token_endpoint] = { body: { ...tokens, refresh_token: 'r1', id_token: await idToken() } };
    const known = await redeem();
    const refused = (status: number) => ({ status, body: { error: 'invalid_request' } });
    answers[token_endpoint] = refused(400);
    await expect(renew(known)).rejects.toMatchObject({ code: 'ERR_NGROK_3151', isOutage: false });
    // What Dex answers about somebody who was removed, and when its own source of people is down.
    answers[token_endpoint] = refused(500);
    await expect(renew(known)).rejects.toMatchObject({ isOutage: true });
  });
});

describe('exchanges with a provider that does not answer', () => {
  const callback = new URL('https://cam.example.com/ngrok/oidc/callback?code=c&state=s');

  /** A client of GitHub, and the requests to it that wait. */
  async function waiting() {
    let open = 0;
    const send: typeof requestPublic = async (_url, _maxBytes, { signal } = {}) => {
      open += 1;
      await new Promise((resolve) => signal?.addEventListener('abort', resolve));
      open -= 1;
      throw signal?.reason;
    };
    const { place } = PROVIDER_PRESETS.github;
    const provider = await connectToProvider({ place, clientId: 'cam', clientSecret: 'secret' }, send);
    return { provider, open: () => open };
  }

  it('take no place from people of other networks, and end when the client leaves', async () => {
    const { provider, open } = await waiting();
    const leaving = new AbortController();
    const ends: unknown[] = [];
    const strangers = Array.from({ length: 30 }, () =>
      provider
        .redeem(callback, ATTEMPT, { clientIp: '192.0.2.66', clientLeft: leaving.signal })
        .catch((error) => ends.push(error)),
    );
    await until(() => open() === 20 && ends.length === 10, 'exchanges in all places');
    expect(ends[0]).toMatchObject({ status: 503, code: 'ERR_NGROK_3165' });
    const other = new AbortController();
    const signIn = provider.redeem(callback, ATTEMPT, { clientIp: '198.51.100.9', clientLeft: other.signal });
    await until(() => ends.length === 11 && open() === 20, 'an exchange in the place of another one');
    leaving.abort(new ClientLeft());
    await Promise.all(strangers);
    expect(ends.at(-1)).toBeInstanceOf(ClientLeft);
    await until(() => open() === 1, 'the end of the requests');
    other.abort(new ClientLeft());
    await expect(signIn).rejects.toThrow(ClientLeft);
    expect(open()).toBe(0);
  });
});
