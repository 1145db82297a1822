import { z } from 'zod';
import { body, COMMON_ANSWER, text, UNKNOWN_ID } from './resource.ts';

const NAME_TOO_LONG = 4110;

const NAME = 'For people; it need not be unique.';
const name = text(255, NAME_TOO_LONG, NAME);
const active = z.boolean().describe('While false, its authtokens and API keys are rejected.');

export const BotUserCreate = body({ name: name.default(''), active: active.default(true) });
export type BotUserCreate = z.input<typeof BotUserCreate>;

export const BotUserUpdate = body({ name: name.optional(), active: active.optional() });
export type BotUserUpdate = z.input<typeof BotUserUpdate>;

export const BotUser = z
  .object({ ...COMMON_ANSWER, name: z.string().describe(NAME), active })
  .describe('An identity that owns authtokens and API keys and does not belong to a person.');
export type BotUser = z.output<typeof BotUser>;

export const botUsers = {
  name: 'bot user',
  path: '/bot_users',
  idPrefix: 'bot_',
  listKey: 'bot_users',
  unknownIdCode: UNKNOWN_ID,
  create: BotUserCreate,
  update: BotUserUpdate,
  answer: BotUser,
};

/** The newer name of bot users: the same identities with a different prefix and path. */
export const serviceUsers = {
  ...botUsers,
  name: 'service user',
  path: '/service_users',
  idPrefix: 'service_',
  listKey: 'service_users',
};
