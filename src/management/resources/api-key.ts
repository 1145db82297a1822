import { z } from 'zod';
import { ownerId } from './credential.ts';
import { ANNOTATIONS_ANSWER, annotations, body, COMMON_ANSWER, orNull } from './members.ts';
import { UNKNOWN_ID } from './resource.ts';

export const ApiKeyCreate = body({ ...annotations(604, 605), owner_id: ownerId.optional() });
export type ApiKeyCreate = z.input<typeof ApiKeyCreate>;

export const ApiKeyUpdate = body(annotations(604, 605));
export type ApiKeyUpdate = z.input<typeof ApiKeyUpdate>;

/** A key for this API. */
export const ApiKey = z.object({
  ...COMMON_ANSWER,
  ...ANNOTATIONS_ANSWER,
  /** Shown in the answer to its creation only, null ever after. */
  token: orNull(z.string()),
  owner_id: orNull(z.string()),
});
export type ApiKey = z.output<typeof ApiKey>;

export const apiKeys = {
  name: 'API key',
  path: '/api_keys',
  idPrefix: 'ak_',
  listKey: 'keys',
  unknownIdCode: UNKNOWN_ID,
  create: ApiKeyCreate,
  update: ApiKeyUpdate,
  answer: ApiKey,
};
