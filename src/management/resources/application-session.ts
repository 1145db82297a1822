import { z } from 'zod';
import { COMMON_ANSWER, defineResource, listFilters, orNull, Ref, UTC } from './resource.ts';

const time = (what: string) => z.string().describe(`${what} ${UTC}`);

export const ApplicationUser = z
  .object({
    ...COMMON_ANSWER,
    identity_provider: z
      .object({
        name: z.string().describe('The host of the issuer, for people.'),
        url: z.string().describe('The issuer, as policies name it.'),
      })
      .describe('Where the person has signed in; `url` is the issuer, as policies name it.'),
    provider_user_id: z.string().describe("The provider's identifier of the person, which never changes."),
    username: z.string().describe("Always empty. ngrok's API has it."),
    email: z.string().describe('Empty when the provider sends none, or one that it has not verified.'),
    name: z.string().describe('The name of the person, as the provider knows it; may be empty.'),
    last_active: time('The same as `last_login`: the gateway does not write at each request.'),
    last_login: time('When the person last signed in.'),
  })
  .describe(
    'Somebody who has signed in at an endpoint whose policy requires it. Listed as long as one of their sessions is.',
  );
export type ApplicationUser = z.output<typeof ApplicationUser>;

export const ApplicationUserFilters = listFilters(
  'id, email address, name, identity provider or id there',
  ['email', 'name', 'last_login'],
  {},
);

export const applicationUsers = defineResource({
  name: 'application user',
  path: '/app/users',
  idPrefix: 'au_',
  table: 'application_users',
  eventName: null,
  listKey: 'application_users',
  answer: ApplicationUser,
  filters: ApplicationUserFilters,
});

const UserAgent = z.object({
  raw: z.string().describe('The header User-Agent, as the browser sent it.'),
  browser_name: z.string().describe('For example `Firefox`; empty when it is unknown.'),
  browser_version: z.string().describe('The version of the browser; empty when it is unknown.'),
  device_type: z.string().describe('`Desktop`, `Mobile`, `Tablet` or `Bot`; empty when it is unknown.'),
  os_name: z.string().describe('The operating system, for example `Android`; empty when it is unknown.'),
  os_version: z.string().describe('The version of the operating system; empty when it is unknown.'),
});

export const ApplicationSession = z
  .object({
    ...COMMON_ANSWER,
    id: z.string().describe('The same as `actions.ngrok.oidc.identity.current_session_id` in policies.'),
    public_url: z.string().describe('The URL at which the person has signed in.'),
    browser_session: z
      .object({
        user_agent: UserAgent.describe('What the browser says about itself.'),
        ip_address: z.string().describe('The address of the client.'),
        location: orNull(z.unknown()).describe("Always null. ngrok's API has the place of the address."),
      })
      .describe('The browser, as of the sign-in.'),
    application_user: Ref.describe('The person, as an application user.'),
    last_active: time('The same as `created_at`: the gateway does not write at each request.'),
    expires_at: time('When the session ends at the latest. It ends earlier when it is not used.'),
    endpoint: Ref.describe('The endpoint at which the person has signed in. It may no longer exist.'),
    edge: orNull(Ref).describe("Always null. ngrok's API has it for HTTPS edges."),
    route: orNull(Ref).describe("Always null. ngrok's API has it for HTTPS edges."),
  })
  .describe('A session of an application user in one browser.');
export type ApplicationSession = z.output<typeof ApplicationSession>;

export const ApplicationSessionFilters = listFilters(
  'id, URL, address, browser, or email address and name of the person',
  ['public_url', 'expires_at'],
  {},
);

export const applicationSessions = defineResource({
  name: 'application session',
  path: '/app/sessions',
  idPrefix: 'as_',
  table: 'application_sessions',
  eventName: null,
  listKey: 'application_sessions',
  answer: ApplicationSession,
  filters: ApplicationSessionFilters,
});
