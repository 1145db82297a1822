import { z } from 'zod';
import { ownerId } from './credential.ts';
import { ANNOTATIONS_ANSWER, annotations, body, COMMON_ANSWER, orNull } from './members.ts';
import { UNKNOWN_ID } from './resource.ts';

export const ApiKeyCreate = body({ ...annotations(604, 605), owner_id: ownerId.optional() });
export interface ApiKeyCreate extends z.input<typeof ApiKeyCreate> {
  /** A bot user. It cannot be changed later. */
  owner_id?: string | undefined;
}

export const ApiKeyUpdate = body(annotations(604, 605));
export interface ApiKeyUpdate extends z.input<typeof ApiKeyUpdate> {}

export const ApiKey = z.object({
  ...COMMON_ANSWER,
  ...ANNOTATIONS_ANSWER,
  token: orNull(z.string()),
  owner_id: orNull(z.string()),
});
export interface ApiKey extends z.output<typeof ApiKey> {
  /** The key itself: only in the response to its creation, null afterwards. */
  token: string | null;
}

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
