import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { createSignIn } from '../../../src/gateway/sign-in/create-sign-in.ts';
import { SecretsBox } from '../../../src/lib/secrets-box.ts';
import { compilePolicy } from '../../../src/traffic-policy/engine.ts';
import type { PublicRequest } from '../../../src/traffic-policy/fetch-document.ts';
import type { PolicyPorts, PolicyTrouble } from '../../../src/traffic-policy/ports.ts';
import { PROVIDER_PRESETS } from '../../../src/traffic-policy/sign-in/provider-presets.ts';
import { connectionFrom, requestFor, TLS_WITHOUT_CERTIFICATES } from '../fake-request.ts';
import { headerIn, respondWith } from './run-action.ts';

type Documents = Record<string, unknown>;

/** A way through sign-in at a provider that answers with these documents or statuses, to what the endpoint answers then. */
async function signIn(provider: string, documents: Documents, more: object = {}) {
  const sent: { url: string; request: PublicRequest }[] = [];
  const troubles: PolicyTrouble[] = [];
  const clock = { passed: 0 };
  const send = async (url: string, _maxBytes: number, request: PublicRequest = {}) => {
    sent.push({ url, request });
    const document = documents[url];
    const body = Buffer.from(JSON.stringify(document ?? {}));
    const status = typeof document === 'number' ? document : url in documents ? 200 : 404;
    return { status, headers: { 'content-type': 'application/json' }, body };
  };
  const config = { provider, client_id: 'cameras', client_secret: 'a secret', ...more };
  const report = "actions.ngrok.oauth.identity.provider_user_id + '|' + actions.ngrok.oauth.identity.email";
  const text = JSON.stringify({
    on_http_request: [
      { actions: [{ type: 'oauth', config }, respondWith(`${report} + '|' + actions.ngrok.oauth.identity.name`)] },
    ],
  });
  const box = new SecretsBox(Buffer.alloc(32));
  const begin = () => ({ id: 'as_1', written: Promise.resolve() });
  const signIn = createSignIn({ box, endedSignIns: { before: () => 0 }, begin }, send)('');
  const ports: Partial<PolicyPorts> = {
    signIn,
    wallClock: () => Date.now() + clock.passed,
    onTrouble: (trouble) => troubles.push(trouble),
  };
  const policy = compilePolicy(text, 'https', { ports });
  const ask = async (target: string, cookie: string) => {
    const connection = connectionFrom('203.0.113.7', { tls: TLS_WITHOUT_CERTIFICATES });
    const request = requestFor({ target, headers: ['cookie', cookie], connection });
    const outcome = await policy.onHttpRequest?.(request);
    if (outcome?.kind !== 'answer' && outcome?.kind !== 'error') throw new Error('the request went on');
    return { ...outcome, cookies: request.responseCookies ?? [] };
  };
  const begun = await ask('/', '');
  const place = new URL(headerIn(begun.headers, 'location') ?? '');
  const cookie = (headerIn(begun.cookies, 'set-cookie') ?? '').split(';', 1)[0] ?? '';
  const returned = await ask(`/ngrok/oidc/callback?code=c&state=${place.searchParams.get('state')}`, cookie);
  const session = returned.cookies.findLast((value) => value.includes('ngrok-sign-in'))?.split(';', 1)[0] ?? '';
  return { place, returned, sent, troubles, clock, ask: () => ask('/', session) };
}

const TOKEN = { access_token: 'at', token_type: 'bearer' };

const guide = readFileSync('docs/sign-in.md', 'utf8');

it('every policy in docs/sign-in.md is valid', () => {
  const policies = [...guide.matchAll(/^( *)```yaml\n([\s\S]*?)^ *```/gm)].map(([, indent = '', text = '']) =>
    text.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
  );
  expect(policies.length).toBe(5);
  for (const text of policies) expect(() => compilePolicy(text, 'https')).not.toThrow();
});

it.each(Object.entries(PROVIDER_PRESETS))('docs/sign-in.md lists %s', (provider, { place }) => {
  expect(guide).toContain(`| \`${provider}\` | \`${place.issuer}\` |`);
});

describe('oauth', () => {
  it.each<[string, string, Documents, string]>([
    [
      'github',
      'https://github.com/login/oauth/authorize',
      {
        'https://github.com/login/oauth/access_token': TOKEN,
        'https://api.github.com/user': { id: 7, login: 'jo', name: null, email: 'claimed@example.com' },
        'https://api.github.com/user/emails': [
          { email: 'old@example.com', primary: false, verified: true },
          { email: 'jo@example.com', primary: true, verified: true },
        ],
      },
      '7|jo@example.com|jo',
    ],
    [
      'twitch',
      'https://id.twitch.tv/oauth2/authorize',
      {
        'https://id.twitch.tv/oauth2/token': { ...TOKEN, scope: ['user:read:email'] },
        'https://api.twitch.tv/helix/users': { data: [{ id: '8', email: 'jo@example.com', display_name: 'Jo' }] },
      },
      '8|jo@example.com|Jo',
    ],
    [
      'facebook',
      'https://www.facebook.com/dialog/oauth',
      {
        'https://graph.facebook.com/oauth/access_token': TOKEN,
        'https://graph.facebook.com/me?fields=id,name,email': { id: '9', name: 'Jo' },
      },
      '9||Jo',
    ],
    [
      'amazon',
      'https://www.amazon.com/ap/oa',
      {
        'https://api.amazon.com/auth/o2/token': TOKEN,
        'https://api.amazon.com/user/profile': { user_id: 'amzn1', email: 'jo@example.com', name: 'Jo' },
      },
      'amzn1|jo@example.com|Jo',
    ],
    [
      'linkedin',
      'https://www.linkedin.com/oauth/v2/authorization',
      {
        'https://www.linkedin.com/oauth/v2/accessToken': TOKEN,
        'https://api.linkedin.com/v2/userinfo': {
          sub: 'l1',
          email: 'jo@example.com',
          email_verified: false,
          name: 'Jo',
        },
      },
      'l1||Jo',
    ],
  ])('signs in at %s with its interfaces', async (provider, at, documents, person) => {
    const { place, returned, sent, troubles, ask } = await signIn(provider, documents);
    expect(place.origin + place.pathname).toBe(at);
    expect(Object.fromEntries(place.searchParams)).toMatchObject({
      client_id: 'cameras',
      code_challenge_method: 'S256',
    });
    expect([returned, troubles]).toMatchObject([{ status: 302 }, []]);
    expect(sent[0]?.request.body).toMatch(/code_verifier=.*client_secret=a\+secret/);
    expect(sent[1]?.request.headers).toMatchObject({ authorization: 'Bearer at' });
    const answer = await ask();
    expect(answer.kind === 'answer' && answer.body.toString()).toBe(person);
  });

  it('asks GitHub again who somebody is, and ends the session when it does not say so any more', async () => {
    const documents: Documents = {
      'https://github.com/login/oauth/access_token': TOKEN,
      'https://api.github.com/user': { id: 7, login: 'jo' },
      'https://api.github.com/user/emails': [],
    };
    const { ask, clock } = await signIn('github', documents, { userinfo_refresh_interval: '1h' });
    const said = async () => {
      clock.passed += 2 * 3_600_000;
      const answer = await ask();
      return answer.kind === 'answer' && answer.status === 200 ? answer.body.toString() : answer.status;
    };
    expect(await said()).toBe('7||jo');
    documents['https://api.github.com/user'] = { id: 7, login: 'jo', name: 'Jo' };
    expect(await said()).toBe('7||Jo');
    documents['https://api.github.com/user'] = 503;
    expect(await said()).toBe('7||jo');
    documents['https://api.github.com/user'] = { id: 8, login: 'ann' };
    expect(await said()).toBe(302);
    documents['https://api.github.com/user'] = 401;
    expect(await said()).toBe(302);
  });

  it('rejects what GitHub reports as an error with status 200, and says why', async () => {
    const error = { error: 'incorrect_client_credentials', error_description: 'The client_id is not valid.' };
    const { returned, troubles } = await signIn('github', { 'https://github.com/login/oauth/access_token': error });
    expect(returned).toMatchObject({ kind: 'error', status: 502, code: 'ERR_NGROK_3125' });
    expect(troubles).toMatchObject([{ message: expect.stringContaining('incorrect_client_credentials') }]);
  });

  it('rejects people whose account the provider does not show', async () => {
    const { returned } = await signIn('github', { 'https://github.com/login/oauth/access_token': TOKEN });
    expect(returned).toMatchObject({ kind: 'error', status: 502, code: 'ERR_NGROK_3160' });
  });

  it.each<[object, string]>([
    [{ email: 'victim@example.com', preferred_username: 'mallory@evil.example' }, 'mallory@evil.example'],
    [{ email: 'jo@example.com', preferred_username: 'jo', xms_edov: true }, 'jo@example.com'],
    [{ email: 'victim@example.com' }, ''],
  ])('takes no email of microsoft that any administrator can write: %j', (claims, email) => {
    expect(PROVIDER_PRESETS.microsoft.place.person({ sub: 's', ...claims }).email).toBe(email);
  });
});
