import type { z } from 'zod';
import { ADMISSION_LISTS, admissionBy, admits } from '../access.ts';
import type { ActionContext } from '../action-context.ts';
import { parseConfig } from '../action-problems.ts';
import { SignInGate } from '../sign-in/sign-in-gate.ts';
import { DAY_MS } from '../sign-in/sign-in-session.ts';
import type { PreparedAction } from '../steps.ts';
import { gateAction, IdleTime, SignInConfig } from './openid-connect.ts';

const GatewaySignInConfig = SignInConfig.pick({
  auth_id: true,
  max_session_duration: true,
  allow_cors_preflight: true,
}).extend({ ...ADMISSION_LISTS, idle_session_duration: IdleTime });

/** Makes clients sign in as people of this gateway, which is an action of our own. */
export function gatewaySignIn(config: unknown, context: ActionContext): PreparedAction {
  const parsed = parseConfig(GatewaySignInConfig, config ?? {});
  warnOfUnknown(parsed, context);
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

/** Warnings name so many of each kind. */
const MAX_NAMED = 5;

function warnOfUnknown({ people = [], groups = [] }: z.output<typeof GatewaySignInConfig>, context: ActionContext) {
  const { knowledge } = context.ports;
  if (knowledge === null) return;
  const warn = (field: string, names: readonly string[], problem: string) => {
    if (names.length === 0) return;
    const more = names.length > MAX_NAMED ? ` and ${names.length - MAX_NAMED} more` : '';
    context.warn(`config.${field}: ${names.slice(0, MAX_NAMED).join(', ')}${more} ${problem}`);
  };
  const unknown = people.filter((email) => !knowledge.hasPerson(email));
  warn('people', unknown, 'may not come in: unknown to this gateway; add them with gateway people add');
  const empty = groups.filter((group) => !knowledge.hasMembers(group));
  warn('groups', empty, 'let nobody in: no person of this gateway is in such a group');
}

/** The gateway says itself who somebody is; it sends no claims. */
function nobody(): never {
  throw new Error('people of the gateway have no claims');
}
