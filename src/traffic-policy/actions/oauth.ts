import { z } from 'zod';
import type { ActionContext } from '../action-context.ts';
import { parseConfig } from '../action-problems.ts';
import { refusal } from '../policy-errors.ts';
import { PROVIDER_PRESETS } from '../sign-in/provider-presets.ts';
import type { PreparedAction } from '../steps.ts';
import { IdleTime, SignInConfig, signInAction } from './openid-connect.ts';

const PROVIDERS = Object.keys(PROVIDER_PRESETS) as (keyof typeof PROVIDER_PRESETS)[];

const OAuthConfig = SignInConfig.extend({
  provider: z.enum(PROVIDERS, { error: `must be one of ${PROVIDERS.join(', ')}; others: use openid-connect` }),
  client_id: z.string().min(1).max(1024).optional(),
  idle_session_timeout: IdleTime,
});

/** Makes clients sign in at one of the providers that ngrok names. */
export function oauth(config: unknown, context: ActionContext): PreparedAction {
  const { provider, client_id: id, idle_session_timeout: idleMs, ...common } = parseConfig(OAuthConfig, config);
  const missing = id === undefined ? 'client_id' : common.client_secret === undefined ? 'client_secret' : null;
  if (id === undefined || missing !== null) {
    const problem = `is missing: this gateway is not registered at ${provider}; create a client there, and set its client_id and client_secret`;
    throw refusal('ERR_NGROK_2234', problem, `config.${missing}`);
  }
  const { place, scopes } = PROVIDER_PRESETS[provider];
  return signInAction({ ...common, client_id: id, idleMs }, place, scopes, context, 'oauth');
}
