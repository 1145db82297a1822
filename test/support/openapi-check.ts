import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { openApiDocument } from '../../src/management/openapi.ts';

interface Operation {
  responses: Record<string, { $ref?: string; content?: { 'application/json': { schema: object } } }>;
}

const document = openApiDocument({ baseUrl: 'https://api.gateway.test', version: '0' }) as {
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: { Error: object } };
};
const ajv = new Ajv2020({ strict: false, allErrors: true });
addFormats.default(ajv);
const compiled = new Map<object, ValidateFunction>();

/**
 * Holds an answer against the OpenAPI document.
 *
 * @param path without the query
 * @returns what the document does not allow; empty when the answer is as described
 */
export function openApiProblems(method: string, path: string, status: number, body: string): string[] {
  const operation = operationFor(method, path);
  if (!operation) return status === 404 ? validate(document.components.schemas.Error, body) : [`${status} unrouted`];
  const response = operation.responses[status];
  if (status >= 400) {
    // 415 stands for a content type that the document does not offer.
    return response || status === 415 ? validate(document.components.schemas.Error, body) : [`undocumented ${status}`];
  }
  if (!response) return [`undocumented status ${status}`];
  const schema = response.content?.['application/json'].schema;
  if (!schema) return body === '' ? [] : ['a body where none is described'];
  return validate(closed(schema), body);
}

/** The path in the document that a real path belongs to, or null. */
export function operationFor(method: string, path: string): Operation | null {
  for (const [template, operations] of Object.entries(document.paths)) {
    const pattern = new RegExp(`^${template.replaceAll(/\{\w+\}/g, '[^/]+')}$`);
    const operation = operations[method.toLowerCase()];
    if (operation && pattern.test(path)) return operation;
  }
  return null;
}

function validate(schema: object, body: string): string[] {
  let check = compiled.get(schema);
  if (!check) {
    check = ajv.compile(schema);
    compiled.set(schema, check);
  }
  if (check(JSON.parse(body))) return [];
  return (check.errors ?? []).map((error) => `${error.instancePath} ${error.message} ${JSON.stringify(error.params)}`);
}

const closedSchemas = new Map<object, object>();

/** The same schema, with members that it does not list forbidden: an answer must not say more than is described. */
function closed(schema: object): object {
  const known = closedSchemas.get(schema);
  if (known) return known;
  const result = JSON.parse(
    JSON.stringify(schema, (_, value: unknown) =>
      typeof value === 'object' && value !== null && 'properties' in value
        ? { ...value, additionalProperties: false }
        : value,
    ),
  ) as object;
  closedSchemas.set(schema, result);
  return result;
}
