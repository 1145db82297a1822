import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';

interface Operation {
  responses: Record<string, { $ref?: string; content?: Record<string, { schema: object }> }>;
}

interface Document {
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: { Error: object } };
}

const ajv = new Ajv2020({ strict: false, allErrors: true });
addFormats.default(ajv);
const compiled = new Map<object, ValidateFunction>();

/** Checks responses against an OpenAPI document. */
export class OpenApiCheck {
  readonly #document: Document;

  constructor(document: object) {
    this.#document = document as Document;
  }

  /**
   * @param path without the query
   * @returns violations of the document; empty for a valid response
   */
  problems(method: string, path: string, status: number, body: string): string[] {
    const { Error: errorSchema } = this.#document.components.schemas;
    const operation = operationFor(this.#document, method, path);
    if (!operation) return status === 404 ? validate(errorSchema, body) : [`${status} unrouted`];
    const response = operation.responses[status];
    if (status >= 400) {
      // 415: a content type that the document does not list.
      return response || status === 415 ? validate(errorSchema, body) : [`undocumented ${status}`];
    }
    if (!response) return [`undocumented status ${status}`];
    const schema = response.content?.['application/json']?.schema;
    if (!schema) return body === '' || response.content ? [] : ['a body that is not in the document'];
    return validate(closed(schema), body);
  }
}

/** The document's operation for a real path, or null. */
function operationFor(document: Document, method: string, path: string): Operation | null {
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

/** The schema without additional members: a response must not contain more than described. */
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

/**
 * The types in a document that generators of clients do not know: several besides null, or null alone outside of
 * alternatives.
 */
export function unusualTypes(document: object): string[] {
  const found: string[] = [];
  const visit = (value: unknown, place: string) => {
    if (typeof value !== 'object' || value === null) return;
    const { type, enum: values } = value as { type?: unknown; enum?: unknown };
    const several = Array.isArray(type) && type.filter((each) => each !== 'null').length !== 1;
    const nullValue = Array.isArray(values) && values.includes(null);
    if (several || nullValue || (type === 'null' && !/\/anyOf\/\d+$/.test(place))) found.push(place);
    for (const [name, member] of Object.entries(value)) visit(member, `${place}/${name}`);
  };
  visit(document, '');
  return found;
}

/** How many members a document's schemas have, and how many of these have a description. */
export function describedMembers(document: object): { all: number; described: number } {
  const count = { all: 0, described: 0 };
  const visit = (value: unknown) => {
    if (typeof value !== 'object' || value === null) return;
    if ('properties' in value) {
      const members = Object.values(value.properties as Record<string, { description?: string }>);
      count.all += members.length;
      count.described += members.filter(({ description = '' }) => description !== '').length;
    }
    for (const member of Object.values(value)) visit(member);
  };
  visit(document);
  return count;
}
