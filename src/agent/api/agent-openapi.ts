import type { z } from 'zod';
import {
  describedQuery,
  ErrorBody,
  errorRefs,
  errorResponses,
  type JsonObject,
  jsonSchema,
  pathsOf,
} from '../../lib/http/openapi.ts';
import {
  type AgentOperation,
  ERRORS,
  HEALTH_OPERATIONS,
  LIVENESS_OPERATIONS,
  type Operations,
  SHARE_LINK_OPERATIONS,
  TUNNEL_OPERATIONS,
} from './agent-operations.ts';
import { INSPECTION_OPERATIONS } from './inspection/inspection-operations.ts';

const ALWAYS = [400, 401, 403, 429, 500] as const;

const OPERATIONS: Operations = {
  ...TUNNEL_OPERATIONS,
  ...SHARE_LINK_OPERATIONS,
  ...INSPECTION_OPERATIONS,
  ...LIVENESS_OPERATIONS,
  ...HEALTH_OPERATIONS,
};

/** Describes the agent's API as an OpenAPI 3.1 document, from the schemas that validate its requests. */
export function agentOpenApi(version: string): JsonObject {
  const operations = Object.entries(OPERATIONS).map(([id, operation]) => ({ id, ...operation }));
  return {
    openapi: '3.1.0',
    info: {
      title: 'Device agent API',
      version,
      description: 'Calls on loopback need no token; all others do. Unknown query parameters are refused.',
    },
    servers: [{ url: '/' }],
    security: [{}, { apiToken: [] }],
    paths: pathsOf(operations, describe),
    components: {
      securitySchemes: { apiToken: { type: 'http', scheme: 'bearer' } },
      schemas: { Error: jsonSchema(ErrorBody.required(), 'output') },
      responses: errorResponses(ERRORS),
    },
  };
}

function describe({
  id,
  summary,
  path,
  query,
  body,
  examples,
  answer,
  links,
  errors = [],
}: AgentOperation & { id: string }): JsonObject {
  const pathParameters = [...(path.includes('{url_part}') ? [URL_PART] : []), ...(path.includes('{id}') ? [ID] : [])];
  return {
    operationId: id,
    summary,
    parameters: [...pathParameters, ...describedQuery(query)],
    ...(body && { requestBody: requestBody(body, examples) }),
    responses: {
      ...success(answer, links),
      ...errorRefs([...ALWAYS, ...errors]),
    },
  };
}

function requestBody(body: z.ZodType, examples: AgentOperation['examples'] = {}): JsonObject {
  const named = Object.fromEntries(Object.entries(examples).map(([name, value]) => [name, { value }]));
  return { required: true, content: { 'application/json': { schema: jsonSchema(body, 'input'), examples: named } } };
}

const URL_PART = {
  name: 'url_part',
  in: 'path',
  required: true,
  description: "The first label, host, host:port or whole URL of the tunnel's URL.",
  schema: { type: 'string' },
};

const ID = {
  name: 'id',
  in: 'path',
  required: true,
  description: 'The id of a captured request, or of a share link.',
  schema: { type: 'string' },
};

/** The tunnel that was created, for {@link URL_PART}. */
const CREATED = '$response.body#/domain';

function success(answer: AgentOperation['answer'], links: readonly string[] = []): JsonObject {
  if (answer === null) return { 204: { description: 'Done.' } };
  const content =
    typeof answer === 'string'
      ? { [answer]: { schema: { type: answer === 'application/json' ? 'object' : 'string' } } }
      : { 'application/json': { schema: jsonSchema(answer, 'output') } };
  const linked = links.map((operationId) => [operationId, { operationId, parameters: { url_part: CREATED } }]);
  return { 200: { description: 'Done.', content, ...(links.length > 0 && { links: Object.fromEntries(linked) }) } };
}
