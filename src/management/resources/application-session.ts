import { z } from 'zod';
import { COMMON_ANSWER, defineResource, orNull, Ref } from './resource.ts';

const time = z.string().meta({ description: 'RFC 3339, UTC.' });

/** Somebody who has signed in at an endpoint whose policy requires it. Listed as long as one of their sessions is. */
export const ApplicationUser = z.object({
  ...COMMON_ANSWER,
  identity_provider: z.object({ name: z.string(), url: z.string() }),
  provider_user_id: z.string(),
  username: z.string(),
  email: z.string(),
  name: z.string(),
  last_active: time,
  last_login: time,
});
export interface ApplicationUser extends z.output<typeof ApplicationUser> {
  /** `url` is the issuer, as policies name it. */
  identity_provider: { name: string; url: string };
  /** The provider's identifier, which never changes. */
  provider_user_id: string;
  /** Always empty: it is only in ngrok's API. */
  username: string;
  /** Empty when the provider tells none, or one that it has not verified. */
  email: string;
  /** The same as `last_login`: the gateway does not write at each request. */
  last_active: string;
}

export const applicationUsers = defineResource({
  name: 'application user',
  path: '/app/users',
  idPrefix: 'au_',
  table: 'application_users',
  eventName: null,
  listKey: 'application_users',
  answer: ApplicationUser,
});

const UserAgent = z.object({
  raw: z.string(),
  browser_name: z.string(),
  browser_version: z.string(),
  device_type: z.string(),
  os_name: z.string(),
  os_version: z.string(),
});

/** A session of such a person in one browser. */
export const ApplicationSession = z.object({
  ...COMMON_ANSWER,
  public_url: z.string(),
  browser_session: z.object({ user_agent: UserAgent, ip_address: z.string(), location: orNull(z.unknown()) }),
  application_user: Ref,
  last_active: time,
  expires_at: time,
  endpoint: Ref,
  edge: orNull(Ref),
  route: orNull(Ref),
});
export interface ApplicationSession extends z.output<typeof ApplicationSession> {
  /** `actions.ngrok.oidc.identity.current_session_id` of policies. */
  id: string;
  /** Where the person has signed in. */
  public_url: string;
  /** As of the sign-in. */
  browser_session: z.output<typeof ApplicationSession>['browser_session'];
  /** The same as `created_at`: the gateway does not write at each request. */
  last_active: string;
  /** When the session ends at the latest; it ends earlier when it is not used. */
  expires_at: string;
  /** The endpoint that the person has signed in at; it may be gone. */
  endpoint: Ref;
}

export const applicationSessions = defineResource({
  name: 'application session',
  path: '/app/sessions',
  idPrefix: 'as_',
  table: 'application_sessions',
  eventName: null,
  listKey: 'application_sessions',
  answer: ApplicationSession,
});
