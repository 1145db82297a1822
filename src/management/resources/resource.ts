import type { z } from 'zod';

/** A read-only resource, as server, client and documentation describe it. */
export interface ReadableResource<Answer extends z.ZodType = z.ZodType> {
  /** The name in the singular: `bot user`. */
  name: string;
  /** The path of the collection: `/bot_users`. */
  path: string;
  /** The prefix of every id: `bot_`. */
  idPrefix: string;
  /** The member of a list response that has the list. */
  listKey: string;
  /** The error code for an unknown id in a path (status 404). */
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

/** The code for unknown ids of resources without a code of their own. */
export const UNKNOWN_ID = 222;

/** The pattern of an id with one of these prefixes, for example `rd_`. */
export function idPattern(...prefixes: string[]): string {
  const prefix = prefixes.length === 1 ? prefixes[0] : `(?:${prefixes.join('|')})`;
  // KSUIDs have 27 characters; some very old ids of ngrok's cloud are shorter.
  return `^${prefix}[0-9A-Za-z]{1,27}$`;
}
