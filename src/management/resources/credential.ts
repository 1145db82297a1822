import { z } from 'zod';
import { parseAclRule } from './acl-rule.ts';
import { refused } from './refusal.ts';
import {
  ANNOTATIONS_ANSWER,
  annotations,
  body,
  COMMON_ANSWER,
  defineResource,
  idOf,
  listFilters,
  orNull,
} from './resource.ts';

const MAX_RULES = 100;
const ACL = 'The ACL: what it may bind, for example `bind:*.sitea.example.com`. Empty: no restriction.';
const OWNED_BY = 'The bot user that owns it; null without one.';
const OWNER = 'A bot user. It cannot be changed later.';

/** Owners of authtokens: people, and bot users under either name. */
export const ownerId = idOf(['usr_', 'bot_', 'service_'], 243);

const acl = z
  .array(
    z
      .string()
      .max(1024)
      .refine(
        (rule) => parseAclRule(rule) !== null,
        refused(600, 'must be * or bind: with a hostname, host:port or key=value'),
      ),
  )
  .max(MAX_RULES)
  .describe(`${ACL} At most ${MAX_RULES} rules.`);

export const CredentialCreate = body({
  ...annotations(604, 605),
  acl: acl.default([]),
  owner_id: ownerId.optional().describe(OWNER),
});
export type CredentialCreate = z.input<typeof CredentialCreate>;

export const CredentialUpdate = body({ ...annotations(604, 605), acl: acl.optional() });
export type CredentialUpdate = z.input<typeof CredentialUpdate>;

export const Credential = z
  .object({
    ...COMMON_ANSWER,
    ...ANNOTATIONS_ANSWER,
    token: orNull(z.string()).describe('The authtoken itself: only in the response to its creation, null afterwards.'),
    acl: z.array(z.string()).nullable().default([]).describe(ACL),
    owner_id: orNull(z.string()).describe(OWNED_BY),
  })
  .describe("An agent's authtoken: who owns it and what it may bind.");
export type Credential = z.output<typeof Credential>;

export const CredentialFilters = listFilters(
  'id, description, metadata, rules, bot user or device',
  ['description'],
  {},
);

export const credentials = defineResource({
  name: 'credential',
  label: 'Authtoken',
  path: '/credentials',
  idPrefix: 'cr_',
  eventName: 'tunnel_credential',
  create: CredentialCreate,
  update: CredentialUpdate,
  answer: Credential,
  filters: CredentialFilters,
});

export const ApiKeyCreate = body({
  ...annotations(604, 605),
  owner_id: ownerId.optional().describe(OWNER),
});
export type ApiKeyCreate = z.input<typeof ApiKeyCreate>;

export const ApiKeyUpdate = body(annotations(604, 605));
export type ApiKeyUpdate = z.input<typeof ApiKeyUpdate>;

export const ApiKey = z
  .object({
    ...COMMON_ANSWER,
    ...ANNOTATIONS_ANSWER,
    token: orNull(z.string()).describe('The key itself: only in the response to its creation, null afterwards.'),
    owner_id: orNull(z.string()).describe(OWNED_BY),
  })
  .describe('A key for this API. It can do everything that the API can.');
export type ApiKey = z.output<typeof ApiKey>;

export const apiKeys = defineResource({
  name: 'API key',
  path: '/api_keys',
  idPrefix: 'ak_',
  listKey: 'keys',
  create: ApiKeyCreate,
  update: ApiKeyUpdate,
  answer: ApiKey,
});
