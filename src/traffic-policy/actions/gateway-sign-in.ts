import { z } from 'zod';
import { admissionBy, admits } from '../access.ts';
import type { ActionContext } from '../action-context.ts';
import { parseConfig } from '../action-problems.ts';
import { DAY_MS } from '../sign-in/session.ts';
import { SignInGate } from '../sign-in/sign-in-gate.ts';
import type { PreparedAction } from '../steps.ts';
import { gateAction, IdleTime, SignInConfig } from './openid-connect.ts';

const Names = z.array(z.string().min(1).max(254)).min(1).max(1000).optional();

const GatewaySignInConfig = SignInConfig.pick({
  auth_id: true,
  max_session_duration: true,
  allow_cors_preflight: true,
}).extend({ people: Names, groups: Names, idle_session_duration: IdleTime });

/** Makes clients sign in as people of this gateway, which is an action of our own. */
export function gatewaySignIn(config: unknown, context: ActionContext): PreparedAction {
  const parsed = parseConfig(GatewaySignInConfig, config ?? {});
  const { people, owner } = context.ports.signIn;
  const maxMs = parsed.max_session_duration ?? 14 * DAY_MS;
  const gate = new SignInGate(
    {
      result: 'gateway_sign_in',
      place: { issuer: people?.issuer ?? 'https://sign-in.localhost', person: nobody, people: people ?? undefined },
      clientId: context.template('gateway', 'config'),
      // The next owner of the host learns nothing by the sessions of the one before.
      clientSecret: context.template(owner, 'config'),
      scopes: [],
      // The gateway asks people again whose sign-in there is older: the session here would last as long once more.
      parameters: { max_age: String(maxMs / 1000), owner },
      authId: parsed.auth_id ?? '',
      cookieDomain: null,
      times: { maxMs, idleMs: parsed.idle_session_duration ?? DAY_MS },
      renewMs: null,
      allowsPreflight: parsed.allow_cors_preflight ?? false,
      admits: admits(admissionBy(parsed)),
    },
    context,
  );
  return gateAction(gate);
}

/** The gateway says itself who somebody is; it sends no claims. */
function nobody(): never {
  throw new Error('people of the gateway have no claims');
}
