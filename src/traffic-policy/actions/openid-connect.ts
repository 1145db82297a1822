import { z } from 'zod';
import { durationBetween } from '../action-config.ts';
import type { ActionContext } from '../action-context.ts';
import { parseConfig } from '../action-problems.ts';
import type { ProviderPlace } from '../sign-in/identity-provider.ts';
import { personOf } from '../sign-in/provider-presets.ts';
import { SignInGate } from '../sign-in/sign-in-gate.ts';
import { DAY_MS, MAX_SESSION_MS } from '../sign-in/sign-in-session.ts';
import type { PreparedAction } from '../steps.ts';

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const MAX_TIME = durationBetween(SECOND_MS, MAX_SESSION_MS);

/** Parameters of the provider's URL that belong to the protocol. */
const OWN_PARAMETERS: ReadonlySet<string> = new Set([
  ...['client_id', 'client_secret', 'redirect_uri', 'response_type', 'response_mode', 'scope', 'state', 'nonce'],
  ...['code_challenge', 'code_challenge_method', 'request', 'request_uri'],
]);

/** Members that openid-connect and oauth have in common. */
export const SignInConfig = z.strictObject({
  auth_id: z.string().min(1).max(256).optional(),
  client_secret: z.string().max(4096).optional(),
  scopes: z
    .array(z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]{1,256}$/, 'must be a scope, without spaces'))
    .max(50)
    .optional(),
  authz_url_params: z
    .record(z.string().max(256), z.string().max(2048))
    .superRefine((parameters, context) => {
      for (const name of Object.keys(parameters)) {
        if (!OWN_PARAMETERS.has(name)) continue;
        context.addIssue({ code: 'custom', message: `${name} cannot be changed`, params: { ngrok: 'ERR_NGROK_2219' } });
      }
    })
    .optional(),
  max_session_duration: MAX_TIME.optional(),
  userinfo_refresh_interval: durationBetween(MINUTE_MS, MAX_SESSION_MS).optional(),
  allow_cors_preflight: z.boolean().optional(),
  auth_cookie_domain: z
    .string()
    .toLowerCase()
    .regex(
      /^(?=.{1,253}$)\.?(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9-]{2,63}$/,
      'must be a domain such as example.com',
    )
    .transform((domain) => domain.replace(/^\./, ''))
    .optional(),
});

export const IdleTime = MAX_TIME.optional();

const OpenIdConnectConfig = SignInConfig.extend({
  issuer_url: z
    .string()
    .max(2048)
    .refine(isIssuer, {
      error: 'must be a URL that starts with https://, without a query',
      params: { ngrok: 'ERR_NGROK_2226' },
    }),
  client_id: z.string().min(1).max(1024),
  idle_session_duration: IdleTime,
});

/** Makes clients sign in at a provider with OpenID Connect. */
export function openIdConnect(config: unknown, context: ActionContext): PreparedAction {
  const { issuer_url: issuer, idle_session_duration: idleMs, ...common } = parseConfig(OpenIdConnectConfig, config);
  return signInAction({ ...common, idleMs }, { issuer, person: personOf }, ['openid', 'profile', 'email'], context);
}

interface SignInActionConfig extends Omit<z.output<typeof SignInConfig>, 'client_id'> {
  readonly client_id: string;
  readonly idleMs: number | undefined;
}

/** @param scopes those to ask for when the policy names none; the first one is always asked for */
export function signInAction(
  config: SignInActionConfig,
  place: ProviderPlace,
  [first = '', ...more]: readonly string[],
  context: ActionContext,
  result: 'oidc' | 'oauth' = 'oidc',
): PreparedAction {
  const gate = new SignInGate(
    {
      result,
      place,
      clientId: context.template(config.client_id, 'config.client_id'),
      clientSecret: context.template(config.client_secret ?? '', 'config.client_secret'),
      scopes: [...new Set([first, ...(config.scopes ?? more)])],
      parameters: config.authz_url_params ?? {},
      authId: config.auth_id ?? '',
      cookieDomain: config.auth_cookie_domain ?? null,
      times: { maxMs: config.max_session_duration ?? 14 * DAY_MS, idleMs: config.idleMs ?? DAY_MS },
      renewMs: config.userinfo_refresh_interval ?? null,
      allowsPreflight: config.allow_cors_preflight ?? false,
    },
    context,
  );
  return gateAction(gate);
}

/** Runs a gate, also for the paths of a sign-in that the rule's expressions exclude. */
export function gateAction(gate: SignInGate): PreparedAction {
  return {
    ends: false,
    on_http_request: () => (request) => gate.admit(request),
    on_excluded_request: (request) => gate.pass(request),
  };
}

function isIssuer(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, search, hash, username } = new URL(text);
  return protocol === 'https:' && search === '' && hash === '' && username === '';
}
