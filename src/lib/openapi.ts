import { z } from 'zod';

export type Json = Record<string, unknown>;

/** Body of every error; the management API leaves the code out where ngrok does. */
export const ErrorBody = z.object({
  error_code: z.string().optional(),
  status_code: z.int(),
  msg: z.string(),
  details: z.record(z.string(), z.string()),
});

/** Refers to the schema `Error` of the document. */
export function errorResponse(description: string): Json {
  return { description, content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } } };
}

/** OpenAPI 3.1 names its own dialect, so zod's `$schema` is left out. */
export function jsonSchema(schema: z.ZodType, io: 'input' | 'output'): Json {
  const { $schema: _, ...rest } = z.toJSONSchema(schema, { io });
  return rest;
}
