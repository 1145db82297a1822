import type { OPERATIONS } from '../../../management/operations.ts';
import {
  type ApplicationSession,
  type ApplicationUser,
  applicationSessions,
  applicationUsers,
} from '../../../management/resources/application-session.ts';
import { endpoints } from '../../../management/resources/endpoint.ts';
import { parseUserAgent, type UserAgent } from '../../../traffic-policy/scope/user-agent.ts';
import { type EndedSignIn, endSignIns } from '../../sign-in/manage-sign-ins.ts';
import type { ApplicationSessionRow, ApplicationUserRow } from '../../store/sign-ins.ts';
import type { ApiContext } from '../api-context.ts';
import { type ActionsOf, type ApiCaller, found } from '../operation-router.ts';
import { shownPart } from './stored-actions.ts';

export function applicationActions(context: ApiContext) {
  return { applicationUsers: userActions(context), applicationSessions: sessionActions(context) };
}

/** Reads who has signed in; deleting a person ends all of their sessions. */
function userActions(context: ApiContext): ActionsOf<typeof OPERATIONS.applicationUsers> {
  const { applicationUsers: rows } = context.store;
  return {
    get: (id) => showUser(context, found(rows.get(id), applicationUsers)),
    list: (...part) => shownPart(rows.chosen(...part), (row) => showUser(context, row)),
    delete: (id, _body, caller) => {
      const { issuer, subject } = found(rows.get(id), applicationUsers);
      return end(context, { issuer, subject }, caller);
    },
  };
}

/** Reads sessions; deleting one ends it. */
function sessionActions(context: ApiContext): ActionsOf<typeof OPERATIONS.applicationSessions> {
  const { applicationSessions: rows, applicationUsers: users, now } = context.store;
  return {
    get: (id) => showSession(context, found(rows.get(id), applicationSessions)),
    list: (...part) => shownPart(rows.lasting(now(), ...part), (row) => showSession(context, row)),
    delete: (id, _body, caller) => {
      const { user_id } = found(rows.get(id), applicationSessions);
      const { issuer, subject } = found(users.get(user_id), applicationUsers);
      return end(context, { issuer, subject, session: id }, caller);
    },
  };
}

/** Resolves when all gateways know it. */
async function end({ store, live }: ApiContext, target: EndedSignIn, caller: ApiCaller): Promise<void> {
  await store.database.write(() => endSignIns(store, target), caller);
  await live.revoke({});
}

function showUser({ links }: ApiContext, row: ApplicationUserRow): ApplicationUser {
  const { id, created_at, issuer, subject, email, name, last_login } = row;
  return {
    ...{ id, uri: links.of(applicationUsers, id), created_at },
    identity_provider: { name: URL.canParse(issuer) ? new URL(issuer).host : issuer, url: issuer },
    provider_user_id: subject,
    username: '',
    ...{ email, name, last_active: last_login, last_login },
  };
}

function showSession({ links }: ApiContext, row: ApplicationSessionRow): ApplicationSession {
  const { id, created_at, expires_at, public_url, user_id, endpoint_id, ip_address, user_agent: raw } = row;
  const agent = parseUserAgent(raw);
  return {
    ...{ id, uri: links.of(applicationSessions, id), created_at, public_url },
    browser_session: {
      user_agent: {
        raw,
        browser_name: agent.name,
        browser_version: agent.version,
        device_type: deviceType(agent),
        os_name: agent.os,
        os_version: agent.os_version,
      },
      ip_address,
      location: null,
    },
    application_user: links.ref(applicationUsers, user_id),
    ...{ last_active: created_at, expires_at },
    endpoint: links.ref(endpoints, endpoint_id),
    ...{ edge: null, route: null },
  };
}

function deviceType({ is_mobile, is_tablet, is_desktop, is_bot }: UserAgent): string {
  if (is_bot) return 'Bot';
  if (is_mobile) return 'Mobile';
  if (is_tablet) return 'Tablet';
  return is_desktop ? 'Desktop' : '';
}
