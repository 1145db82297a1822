import type { z } from 'zod';

/** What server, client and documentation need to know of a resource that can only be read. */
export interface ReadableResource<Answer extends z.ZodType = z.ZodType> {
  /** For people, in the singular: `bot user`. */
  name: string;
  /** Path of the collection: `/bot_users`. */
  path: string;
  /** Start of every id: `bot_`. */
  idPrefix: string;
  /** Name of the list in a list's answer. */
  listKey: string;
  /** Error code when an id in a path is unknown (status 404). */
  unknownIdCode: number;
  answer: Answer;
}

/** A resource that can also be created, updated and deleted. */
export interface Resource<
  Create extends z.ZodType = z.ZodType,
  Update extends z.ZodType = z.ZodType,
  Answer extends z.ZodType = z.ZodType,
> extends ReadableResource<Answer> {
  create: Create;
  update: Update;
}

/** Code for an unknown id of a kind that has none of its own. */
export const UNKNOWN_ID = 222;
