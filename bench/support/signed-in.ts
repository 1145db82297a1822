import { createSignIn } from '../../src/gateway/sign-in/create-sign-in.ts';
import { SecretsBox } from '../../src/lib/secrets-box.ts';
import { type CompiledPolicy, compilePolicy } from '../../src/traffic-policy/engine.ts';
import type { PolicyRequest } from '../../src/traffic-policy/policy-subjects.ts';
import type { GatewayPeople, IdentityProvider } from '../../src/traffic-policy/sign-in/identity-provider.ts';

/** The configuration of each action that signs people in. */
const CONFIGS = {
  'openid-connect': { issuer_url: 'https://idp.example.com', client_id: 'cam' },
  'gateway-sign-in': { groups: ['family'] },
};

const tokens = { identity: '', access: '', refresh: '' };
const person = { subject: 'd2f0cf9e', email: 'jo@example.com', name: 'Jo', tokens };

/** A provider that knows one person. */
const provider: IdentityProvider = {
  authorizationUrl: ({ state }) => `https://idp.example.com/?state=${state}`,
  redeem: async () => person,
  renew: async () => person,
};

const begin = () => ({ id: 'as_1', written: Promise.resolve() });

const people: GatewayPeople = {
  ...provider,
  issuer: 'https://sign-in.example.com',
  find: () => ({ ...person, groups: ['family'] }),
  pageFor: (origin) => origin,
};

/** A policy with an action that signs people in, and the cookie of somebody who has signed in. */
export async function signedIn(
  type: keyof typeof CONFIGS,
  makeRequest: (target: string, cookie: string) => PolicyRequest,
): Promise<{ policy: CompiledPolicy; cookie: string }> {
  const signIn = {
    ...createSignIn({ box: new SecretsBox(Buffer.alloc(32)), endedSignIns: { before: () => 0 }, begin })(''),
    people,
    provider: async () => provider,
  };
  const text = JSON.stringify({ on_http_request: [{ actions: [{ type, config: CONFIGS[type] }] }] });
  const policy = compilePolicy(text, 'https', { ports: { signIn } });
  const ask = async (target: string, sent: string) => {
    const request = makeRequest(target, sent);
    const outcome = await policy.onHttpRequest?.(request);
    if (outcome?.kind !== 'answer') throw new Error('nobody was signed in');
    const [, location = ''] = outcome.headers;
    // The last cookie that is set.
    return { location, cookie: request.responseCookies?.at(-1)?.split(';', 1)[0] ?? '' };
  };
  const begun = await ask('/', '');
  const state = new URL(begun.location).searchParams.get('state');
  const { cookie } = await ask(`/ngrok/oidc/callback?code=a&state=${state}`, begun.cookie);
  return { policy, cookie };
}
