import { z } from 'zod';
import {
  describedQuery,
  ErrorBody,
  errorRefs,
  errorResponses,
  type JsonObject,
  jsonSchema,
  pathsOf,
} from '../lib/http/openapi.ts';
import { allOperations, type Operation } from './operations.ts';
import {
  CA_PATH,
  ENROLMENTS_PATH,
  Enrolment,
  EnrolmentRequest,
  LEAVE_PATH,
  LeaveRequest,
} from './resources/enrolment.ts';
import { idPattern } from './resources/resource.ts';
import { TIME_PATH, TimeProof, TimeRequest } from './resources/time-proof.ts';

export interface OpenApiOptions {
  baseUrl: string;
  version: string;
}

const ERRORS = {
  400: 'The request is not valid, or conflicts with something that exists.',
  403: 'The API key, or the secret of an enrolment key, is missing, malformed, unknown or revoked.',
  404: 'The id or the path does not exist.',
  415: 'The Content-Type is not JSON.',
  429: 'Too many requests; Retry-After says when to retry.',
  500: 'Internal error.',
  503: 'Temporarily unavailable; Retry-After says when to retry.',
};

/**
 * Generates the OpenAPI 3.1 document of the API from the schemas and operations that server and client use.
 */
export function managementOpenApi({ baseUrl, version }: OpenApiOptions): JsonObject {
  const operations = allOperations().map(({ operation, ...named }) => ({ ...named, ...operation }));
  return {
    openapi: '3.1.0',
    info: {
      title: 'Management API',
      version,
      description:
        'In requests, null members count as absent. PATCH and PUT bodies may repeat the id of the path, and PUT bodies may wrap a module as {id, module}. Changes are durable when they are answered.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: baseUrl }],
    security: [{ apiKey: [] }],
    tags: [...new Set(allOperations().map(({ family }) => family)), 'enrolments'].map((name) => ({ name })),
    paths: { ...pathsOf(operations, describe), ...enrolmentPaths() },
    components: {
      securitySchemes: { apiKey: { type: 'http', scheme: 'bearer' } },
      schemas: { Error: jsonSchema(ErrorBody, 'output') },
      responses: errorResponses(ERRORS),
    },
  };
}

const ENROLMENT_ERRORS = errorRefs([400, 403, 415, 429, 500, 503]);

/** What devices call when they join and leave: without an API key and a version. */
function enrolmentPaths(): Record<string, JsonObject> {
  return {
    [CA_PATH]: {
      get: {
        operationId: 'enrolments.ca',
        summary: 'Get the certificate of the gateway’s CA',
        description: 'Needs no API key. The code of an enrolment key has its SHA-256.',
        security: [],
        tags: ['enrolments'],
        responses: {
          200: { description: 'Success.', content: { 'application/x-pem-file': { schema: { type: 'string' } } } },
        },
      },
    },
    [TIME_PATH]: {
      post: {
        operationId: 'enrolments.time',
        summary: 'Prove the time to a device',
        description:
          'Needs no API key. For devices whose clocks are wrong: they verify the signature with the CA that they have pinned, and no dates. A gateway whose own clock is not set answers 503.',
        security: [],
        tags: ['enrolments'],
        requestBody: requestBody(TimeRequest),
        responses: {
          200: {
            description: 'Success.',
            content: { 'application/json': { schema: jsonSchema(TimeProof, 'output') } },
          },
          ...errorRefs([400, 415, 500, 503]),
        },
      },
    },
    [ENROLMENTS_PATH]: {
      post: {
        operationId: 'enrolments.create',
        summary: 'Enrol a device',
        description:
          'Needs no API key, but the secret of an enrolment key. The same install key gets the same device and authtoken again, without the secret. Refusals are slowed down.',
        security: [],
        tags: ['enrolments'],
        requestBody: requestBody(EnrolmentRequest),
        responses: {
          200: {
            description: 'Success, or waiting for an approval.',
            content: { 'application/json': { schema: jsonSchema(Enrolment, 'output') } },
          },
          ...ENROLMENT_ERRORS,
        },
      },
    },
    [LEAVE_PATH]: {
      post: {
        operationId: 'enrolments.leave',
        summary: 'Forget a device that leaves its site',
        description:
          'Needs no API key, but the install key of the device. Ends its authtoken and frees its name. A revoked device gets 403; an unknown install key 204.',
        security: [],
        tags: ['enrolments'],
        requestBody: requestBody(LeaveRequest),
        responses: { 204: { description: 'Success.' }, ...ENROLMENT_ERRORS },
      },
    },
  };
}

function describe({ id, family, ...operation }: Operation & { id: string; family: string }): JsonObject {
  return {
    operationId: id,
    summary: operation.summary,
    description: explain(operation),
    tags: [family],
    parameters: [
      ...VERSION_HEADERS,
      ...pathParameters(operation),
      ...(operation.listKey === null ? [] : pageParameters(operation)),
      ...describedQuery(operation.filters ?? operation.query),
    ],
    ...(operation.body && { requestBody: requestBody(operation.body) }),
    responses: {
      [operation.status]: success(operation),
      ...errorRefs(Object.keys(ERRORS)),
    },
  };
}

/** What the summary does not say: when a change is durable, how to go on, what cannot be done. */
function explain({ method, status, listKey, answer }: Operation): string {
  if (listKey !== null) {
    return 'Newest first, unless sort says otherwise. next_page_uri leads to the next page, and is null on the last one. Other parameters are refused with 400 ERR_NGROK_231.';
  }
  if (method === 'GET') return 'An unknown id answers 404.';
  if (status === 201) return 'The new item is durable when the answer arrives, and has an id of its own.';
  if (method === 'DELETE') return 'It is gone, and its traffic has ended, when the answer arrives.';
  if (answer === null) return 'The answer does not wait until the agent has done it.';
  return method === 'PUT'
    ? 'Members that are left out get their defaults. The change is durable when the answer arrives.'
    : 'The change is durable when the answer arrives, and applies to new connections.';
}

/** One of the two is required, which OpenAPI cannot express. */
const VERSION_HEADERS = ['Service-Version', 'Ngrok-Version'].map((name) => ({
  name,
  in: 'header',
  description: 'Version of the API; one of Service-Version and Ngrok-Version is required.',
  // Not `const`, which some generators of clients do not know.
  schema: { type: 'string', enum: ['2'] },
}));

function pageParameters({ idPrefix, itemPrefix = idPrefix }: Operation): JsonObject[] {
  return [
    {
      name: 'limit',
      in: 'query',
      description: 'Items per page.',
      schema: { type: 'integer', minimum: 1, maximum: 100, default: 100 },
    },
    {
      name: 'before_id',
      in: 'query',
      description: 'Only items older than this id, which may be deleted.',
      schema: { type: 'string', pattern: idPattern(itemPrefix) },
    },
  ];
}

function pathParameters({ path, idPrefix }: Operation): JsonObject[] {
  const parameters = [
    { name: 'id', description: 'The id of the resource.', schema: { type: 'string', pattern: idPattern(idPrefix) } },
    { name: 'type', description: 'A type of event that the subscription has.', schema: { type: 'string' } },
  ];
  return parameters
    .filter(({ name }) => path.includes(`{${name}}`))
    .map(({ name, ...parameter }) => ({ name, in: 'path', required: true, ...parameter }));
}

/** A missing body counts as an empty one. */
function requestBody(body: z.ZodType): JsonObject {
  const content = { 'application/json': { schema: nullMeansAbsent(jsonSchema(body, 'input')) } };
  return { required: !body.safeParse({}).success, content };
}

/** Lets the optional members of an object be null, at every level. */
function nullMeansAbsent(schema: JsonObject): JsonObject {
  if (typeof schema.properties !== 'object') return schema;
  const required = new Set(schema.required as string[] | undefined);
  const properties = Object.entries(schema.properties as Record<string, JsonObject>).map(([name, member]) => {
    const inner = nullMeansAbsent(member);
    return [name, required.has(name) ? inner : nullable(inner)];
  });
  return { ...schema, properties: Object.fromEntries(properties) };
}

function nullable(schema: JsonObject): JsonObject {
  if (Array.isArray(schema.anyOf)) return { ...schema, anyOf: [...schema.anyOf, { type: 'null' }] };
  const { type, enum: values, ...rest } = schema;
  if (values === undefined) return { ...schema, type: [type, 'null'] };
  // Not null among the values: from those with a default, openapi-generator makes Go code that does not compile.
  return { ...rest, anyOf: [{ type, enum: values }, { type: 'null' }] };
}

function success({ answer, listKey }: Operation): JsonObject {
  if (!answer) return { description: 'Success without a body.' };
  const schema = listKey === null ? answer : listOf(listKey, answer);
  return { description: 'Success.', content: { 'application/json': { schema: jsonSchema(schema, 'output') } } };
}

function listOf(key: string, item: z.ZodType): z.ZodType {
  return z.object({
    [key]: z.array(item).describe('The items of this page, newest first.'),
    uri: z.string().describe('The URI of this page.'),
    next_page_uri: z.string().nullable().describe('The URI of the next page, with older items; null on the last one.'),
  });
}
