import { z } from 'zod';

export type JsonObject = Record<string, unknown>;

/** Body of every error. */
export const ErrorBody = z.object({
  error_code: z.string().describe('The code of the error, which programs can match on.'),
  status_code: z.int().describe('The status of the response again.'),
  msg: z.string().describe('What went wrong and what to do, for people.'),
  details: z.record(z.string(), z.string()).describe('More about it by name, such as each member that is not valid.'),
});

/** A response that refers to the document's schema `Error`. */
function errorResponse(description: string): JsonObject {
  return { description, content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } } };
}

/** Omits zod's `$schema`: OpenAPI 3.1 declares its own dialect. */
export function jsonSchema(schema: z.ZodType, io: 'input' | 'output'): JsonObject {
  const { $schema: _, ...rest } = z.toJSONSchema(schema, { io });
  return splitTypes(rest) as JsonObject;
}

/** Writes several types as alternatives: generators of clients know lists of types only with null. */
function splitTypes(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(splitTypes);
  if (typeof value !== 'object' || value === null) return value;
  const schema = Object.fromEntries(Object.entries(value).map(([name, member]) => [name, splitTypes(member)]));
  const { type, ...rest } = schema;
  const isList = Array.isArray(type) && type.filter((each) => each !== 'null').length > 1;
  return isList ? { ...rest, anyOf: type.map((each) => ({ type: each })) } : schema;
}

/** The paths of a document: what `describe` says of each operation, by path and method. */
export function pathsOf<T extends { path: string; method: string }>(
  operations: readonly T[],
  describe: (operation: T) => JsonObject,
): Record<string, JsonObject> {
  const paths: Record<string, JsonObject> = {};
  for (const operation of operations) {
    const { path, method } = operation;
    paths[path] = { ...paths[path], [method.toLowerCase()]: describe(operation) };
  }
  return paths;
}

/** The parameters of a query; none without a schema. */
export function describedQuery(query: z.ZodType | undefined): JsonObject[] {
  const { properties = {} } = query ? jsonSchema(query, 'input') : {};
  return Object.entries(properties as Record<string, JsonObject>).map(([name, { description, ...schema }]) => ({
    name,
    in: 'query',
    description,
    schema,
  }));
}

/** The components that {@link errorRefs} names, from the texts by status. */
export function errorResponses(texts: Readonly<Record<number, string>>): JsonObject {
  return Object.fromEntries(Object.entries(texts).map(([status, text]) => [`Error${status}`, errorResponse(text)]));
}

/** The responses of an operation with these statuses of errors. */
export function errorRefs(statuses: readonly (number | string)[]): JsonObject {
  return Object.fromEntries(statuses.map((status) => [status, { $ref: `#/components/responses/Error${status}` }]));
}
