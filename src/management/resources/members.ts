import { z } from 'zod';
import { errorCode, type Refusal, refused, WRONG_VALUE } from './refusal.ts';

/** A reference to another resource. */
export const Ref = z.object({ id: z.string(), uri: z.string() });
export interface Ref extends z.output<typeof Ref> {}

/**
 * A request body: members that are not listed are refused with 214 and the list of those that are.
 *
 * Request schemas describe a body after {@link ../request.ts} took away what official clients add
 * (nulls, the path's `id`, the wrapper of a module).
 */
export function body<S extends z.ZodRawShape>(shape: S) {
  return z.strictObject(shape);
}

/**
 * Text that is limited in bytes of UTF-8, as the service counts.
 *
 * @param maxBytes inclusive
 * @param code error code when it is longer
 */
export function text(maxBytes: number, code: number = WRONG_VALUE) {
  return (
    z
      .string()
      // A character has at least one byte, so this bound on characters is true as well.
      .meta({ maxLength: maxBytes, description: `At most ${maxBytes} bytes of UTF-8.` })
      .refine((value) => Buffer.byteLength(value) <= maxBytes, refused(code, `is longer than ${maxBytes} bytes`))
  );
}

/** The two free texts that most resources carry, with the error codes for too long ones. */
export function annotations(descriptionCode?: number, metadataCode?: number) {
  return {
    description: text(255, descriptionCode).optional(),
    metadata: text(4096, metadataCode).optional(),
  };
}

/**
 * The id of another resource inside a body.
 *
 * @param prefixes allowed kinds, such as `cert_`
 * @param code error code when the text is not such an id
 */
export function idOf(prefixes: readonly string[], code: number) {
  const message = refused(code, `must be an id that starts with ${prefixes.join(' or ')}`);
  // KSUIDs have 27 characters; a few very old ids of the cloud are shorter.
  return z.string(message).regex(new RegExp(`^(?:${prefixes.join('|')})[0-9A-Za-z]{1,27}$`), message);
}

/** Whether no value occurs twice. */
export function areDistinct(values: readonly unknown[]): boolean {
  return new Set(values).size === values.length;
}

/**
 * A string that a parser checks and brings into its normal form.
 *
 * @param parse returns the normal form, or why there is none
 * @param missing error code when it is not a string at all
 */
export function parsed(parse: (text: string) => string | Refusal, missing: number) {
  return z.string(refused(missing, 'is missing or not a string')).transform((value, ctx) => {
    const result = parse(value);
    if (typeof result === 'string') return result;
    ctx.issues.push({ code: 'custom', message: `${errorCode(result.code)}: ${result.text}`, input: value });
    return z.NEVER;
  });
}

/** An answer's member that is null when it was never set; left out by some services, read as null here. */
export function orNull<T extends z.ZodType>(schema: T) {
  return schema.nullable().default(null);
}

/** A member that says nothing any more; whatever an older service puts there is read as null. */
export const alwaysNull = z.null().default(null).catch(null);

/** Members that nearly every answer has. */
export const COMMON_ANSWER = {
  id: z.string(),
  uri: z.string(),
  created_at: z.string().meta({ description: 'RFC 3339, UTC.' }),
};

/** The annotations in answers. */
export const ANNOTATIONS_ANSWER = {
  description: orNull(z.string()),
  metadata: orNull(z.string()),
};
