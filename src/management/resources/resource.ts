import { z } from 'zod';
import { errorCode, type Refusal, refused, WRONG_VALUE } from './refusal.ts';

export const Ref = z
  .object({
    id: z.string().describe('The id of the resource that this refers to.'),
    uri: z.string().describe('The URI in this API at which that resource can be read.'),
  })
  .describe('A reference to another resource.');
export type Ref = z.output<typeof Ref>;

export const DeviceRef = z
  .object({ ...Ref.shape, name: z.string().describe('The name of the device at its site.') })
  .describe('A device that something belongs to.');

/**
 * A request body. An unknown member is rejected with 214 and the list of known ones.
 *
 * Schemas describe a body after {@link ../request.ts} removed what official clients add: nulls, the `id` of the path, and
 * the wrapper of a module.
 */
export function body<S extends z.ZodRawShape>(shape: S) {
  return z.strictObject(shape);
}

/** For a body, the form that our client's types describe, where the API also takes what only other clients send. */
export const OWN_FORMS = new Map<z.ZodType, z.ZodType>();

/**
 * Text with a limit in bytes of UTF-8, which is how ngrok counts.
 *
 * @param code error code for a longer text
 * @param what describes it; the limit is added
 */
export function text(maxBytes: number, code: number = WRONG_VALUE, what = '') {
  return (
    z
      .string()
      // Each character has at least one byte, so the limit also holds for characters.
      .meta({ maxLength: maxBytes, description: `${what} At most ${maxBytes} bytes of UTF-8.`.trimStart() })
      .refine((value) => Buffer.byteLength(value) <= maxBytes, refused(code, `is longer than ${maxBytes} bytes`))
  );
}

export const DESCRIPTION = 'A text for people. The gateway only stores it.';
export const METADATA = 'A text for programs, such as JSON. The gateway only stores it.';
export const NO_REGION = 'Always empty: a gateway has no regions.';
/** A query parameter that finds items by any part of a text, whatever its case. @param what the texts that are searched */
export function searchFilter(what: string) {
  return z
    .string()
    .max(100, refused(WRONG_VALUE, 'is longer than 100 characters'))
    .transform((text) => text.trim().toLowerCase())
    .optional()
    .meta({ description: `Only items with this text, in any case, in their ${what}.` });
}

/** By what a list is sorted. */
export interface ListSort<By extends string = string> {
  readonly by: By;
  readonly isDescending: boolean;
}

/**
 * The query parameters of a list that the gateway searches and sorts.
 *
 * @param searched the texts that a search looks at
 * @param sorts what it can be sorted by
 * @param own further parameters of this list
 */
export function listFilters<By extends string, Own extends z.ZodRawShape>(
  searched: string,
  sorts: readonly By[],
  own: Own,
) {
  const names = sorts.flatMap((by) => [by, `-${by}` as const]);
  return z.strictObject({
    search: searchFilter(searched),
    ...own,
    sort: z
      .enum(names, refused(WRONG_VALUE, `must be ${sorts.join(', ')}, or one of them after a hyphen`))
      .transform((text): ListSort<By> => ({ by: text.replace(/^-/, '') as By, isDescending: text.startsWith('-') }))
      .optional()
      .meta({ description: 'The order; after a hyphen, the reverse one. Left out: newest first.' }),
    after: z.string().max(1024, refused(WRONG_VALUE, 'is longer than 1024 characters')).optional().meta({
      description: 'Only in `next_page_uri` of a sorted list: where the next page begins, beside `before_id`.',
    }),
  });
}

/** What a list can be sorted by, each also in the reverse order. */
export function sortsOf(filters: z.ZodObject | undefined): readonly string[] {
  const sort = filters?.shape.sort as z.ZodType | undefined;
  return sort ? ((z.toJSONSchema(sort, { io: 'input' }).enum as string[] | undefined) ?? []) : [];
}

/** What the parameters of every such list have in common. */
export interface ListFilters {
  readonly search?: string | undefined;
  readonly sort?: ListSort | undefined;
  readonly after?: string | undefined;
}

/** The parameter that limits a list to a site, written with or without its wildcard. */
export const siteFilter = (what: string) =>
  z
    .string()
    .max(255, refused(WRONG_VALUE, 'is longer than 255 characters'))
    .transform((text) => text.toLowerCase().replace(/^\*\./, ''))
    .optional()
    .meta({ description: `Only ${what} of this site, such as \`site-a.example.com\`.` });

/** The parameter that limits a list to labels of devices. */
export const labelFilter = (ofWhat: string) =>
  z
    .string()
    .max(300, refused(WRONG_VALUE, 'is longer than 300 characters'))
    .optional()
    .meta({ description: `\`name=value\`, or \`name\` for any value, of ${ofWhat}.` });

/** The parameter that limits a list to versions of agents. */
export const versionFilter = (what: string) =>
  z
    .string()
    .max(100, refused(WRONG_VALUE, 'is longer than 100 characters'))
    .optional()
    .meta({ description: `Only ${what} that says this version, or one that begins with it.` });

/** The parameter that limits a list to a state. */
export const stateFilter = <const State extends string>(states: readonly State[], description: string) =>
  z
    .enum(states, refused(WRONG_VALUE, `must be one of ${states.join(', ')}`))
    .optional()
    .meta({ description });

/** Format of all times. */
export const UTC = 'RFC 3339, UTC.';

/** The two free texts of most resources, with the error codes for texts that are too long. */
export function annotations(descriptionCode?: number, metadataCode?: number) {
  return {
    description: text(255, descriptionCode, DESCRIPTION).optional(),
    metadata: text(4096, metadataCode, METADATA).optional(),
  };
}

/** The id of another resource in a body, with one of the prefixes, for example `cert_`. */
export function idOf(prefixes: readonly string[], code: number) {
  const message = refused(code, `must be an id that starts with ${prefixes.join(' or ')}`);
  return z.string(message).regex(new RegExp(idPattern(...prefixes)), message);
}

/** Like {@link idOf} for a member that may be missing; official clients send `""` for it. */
export function optionalIdOf(prefix: string) {
  return z
    .literal('')
    .or(idOf([prefix], 227))
    .transform((id) => (id === '' ? undefined : id))
    .optional();
}

/** Whether all values differ. */
export function areDistinct(values: readonly unknown[]): boolean {
  return new Set(values).size === values.length;
}

/**
 * A string that a parser checks and brings into canonical form.
 *
 * @param missing error code for a missing value or a non-string
 * @param pattern for readers and generators of the OpenAPI document: matches whatever the parser accepts
 */
export function parsed(parse: (text: string) => string | Refusal, missing: number, pattern: RegExp) {
  return z
    .string(refused(missing, 'is missing or not a string'))
    .meta({ pattern: pattern.source })
    .transform((value, ctx) => {
      const result = parse(value);
      if (typeof result === 'string') return result;
      ctx.issues.push({ code: 'custom', message: `${errorCode(result.code)}: ${result.text}`, input: value });
      return z.NEVER;
    });
}

/** A member of a response that is null when it was never set. Some services omit it. */
export function orNull<T extends z.ZodType>(schema: T) {
  return schema.nullable().default(null);
}

/** An obsolete member: any value of an older service is read as null. */
export const alwaysNull = z
  .null()
  .default(null)
  .catch(null)
  // Generators of clients know no type that is only null.
  .meta({ description: 'Obsolete: always null.', type: ['string', 'null'] });

/** Members of nearly every response. */
export const COMMON_ANSWER = {
  id: z.string().describe('The identifier, unique for all time. Ids of one kind sort by age.'),
  uri: z.string().describe('The URI in this API at which it can be read.'),
  created_at: z.string().describe(`When it was created. ${UTC}`),
};

export const ANNOTATIONS_ANSWER = {
  description: orNull(z.string()).describe(`${DESCRIPTION} Null when it was never set.`),
  metadata: orNull(z.string()).describe(`${METADATA} Null when it was never set.`),
};

/** A read-only resource, as server, client, documentation and pages describe it. */
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
  /** The gateway's table of it. */
  table: string;
  /** What events call it: `bot_user` in `bot_user_created.v0`; null: there are no events about changes of it. */
  eventName: string | null;
  /** What pages call one: `Bot user`. */
  label: string;
  /** Members that pages and commands show as they are, with what they call them. */
  shown?: Readonly<Record<string, string>>;
  answer: Answer;
  /** Query parameters of its list, besides those of every list. */
  filters?: z.ZodObject;
  /** What the gateway stores of one, in columns of the same names. Left out: its table says that, in src/gateway/store. */
  row?: z.ZodObject;
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

type Derived = Pick<ReadableResource, 'listKey' | 'unknownIdCode' | 'table' | 'eventName' | 'label'>;

/** A resource; list key, table, label and name in events follow from path and name unless they are given. */
export function defineResource<R extends Omit<ReadableResource, keyof Derived> & Partial<Derived>>(
  given: R,
): Derived & R {
  const inPath = given.path.slice(1);
  const eventName = given.name.toLowerCase().replaceAll(' ', '_');
  const label = given.name.replace(/^./, (letter) => letter.toUpperCase());
  return { listKey: inPath, unknownIdCode: UNKNOWN_ID, table: inPath, eventName, label, ...given };
}

/** The code for unknown ids of resources without a code of their own. */
const UNKNOWN_ID = 222;

/** The pattern of an id with one of these prefixes, for example `rd_`. */
export function idPattern(...prefixes: string[]): string {
  const prefix = prefixes.length === 1 ? prefixes[0] : `(?:${prefixes.join('|')})`;
  // KSUIDs have 27 characters; some very old ids of ngrok's cloud are shorter.
  return `^${prefix}[0-9A-Za-z]{1,27}$`;
}
