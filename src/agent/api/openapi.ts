import { z } from 'zod';
import { ErrorBody, errorResponse, type Json, jsonSchema } from '../../lib/http/openapi.ts';
import { ReplayRequest } from '../inspector/replay-request.ts';
import { TunnelChange, TunnelRequest } from '../tunnels/tunnel.ts';
import { StatusReport } from './health-router.ts';
import { InspectionReport, MessageReport, RequestDetail, RequestSummary } from './inspection/inspection-reports.ts';
import {
  HarQuery,
  InspectionRequest,
  MessagesQuery,
  RequestsQuery,
  RevealQuery,
} from './inspection/inspection-router.ts';
import { CreatedTunnel, ListedTunnel, TunnelDetail } from './present.ts';
import { ListQuery } from './tunnels-router.ts';

interface Operation {
  id: string;
  method: 'get' | 'post' | 'put' | 'patch' | 'delete';
  path: string;
  summary: string;
  query?: z.ZodObject;
  body?: z.ZodType;
  /** Bodies that any agent accepts, by name. */
  examples?: Record<string, z.input<typeof TunnelRequest>>;
  /** Operations on what this one created. */
  links?: string[];
  /** Null: 204 without a body; a text: the content type of an answer that is no JSON of a fixed form. */
  answer: z.ZodType | ContentType | null;
  /** Statuses besides those that every operation can answer. */
  errors?: (keyof typeof ERRORS)[];
}

type ContentType = 'text/plain' | 'text/event-stream' | 'application/octet-stream';

const ERRORS = {
  400: 'The request is not valid, or its upstream or policy is not allowed.',
  401: 'The API token is missing or wrong.',
  403: 'The local API refuses the host, the site or the proxy; or the gateway refuses the domain.',
  404: 'No such tunnel or request.',
  409: 'The domain is in use, several tunnels match, or the request cannot be replayed.',
  413: 'The body is larger than 256 KiB.',
  415: 'The body is not declared as JSON.',
  429: 'Too many wrong API tokens; Retry-After says when to retry.',
  500: 'An internal error, or the change could not be written to the disk.',
  501: 'The gateway does not support the protocol.',
  502: 'The gateway refused the tunnel.',
  503: 'Not ready, or no session with the gateway; Retry-After says when to retry.',
};
const ALWAYS = [400, 401, 403, 429, 500] as const;

const Alive = z.object({ status: z.literal('alive') });
const Ready = z.object({ status: z.literal('ready') });

const OPERATIONS: Operation[] = [
  get('/tunnels', 'listTunnels', 'List the tunnels, in order of creation', z.array(ListedTunnel), { query: ListQuery }),
  {
    id: 'startTunnel',
    method: 'post',
    path: '/tunnels',
    summary: 'Start a tunnel and persist it',
    body: TunnelRequest,
    examples: {
      http: { forwards_to: 8080 },
      tls: { protocol: 'tls', forwards_to: 'localhost:8443' },
      policy: { forwards_to: 'http://192.168.1.10', policy: { on_http_request: [{ actions: [{ type: 'deny' }] }] } },
    },
    answer: CreatedTunnel,
    links: ['getTunnel', 'deleteTunnel'],
    errors: [409, 413, 415, 501, 502, 503],
  },
  get('/tunnels/{url_part}', 'getTunnel', 'Show a tunnel with its status', TunnelDetail, { errors: [404, 409] }),
  {
    id: 'changeTunnel',
    method: 'patch',
    path: '/tunnels/{url_part}',
    summary: 'Change the policy or the upstream of a tunnel',
    body: TunnelChange,
    answer: TunnelDetail,
    errors: [404, 409, 413, 415, 502, 503],
  },
  {
    id: 'deleteTunnel',
    method: 'delete',
    path: '/tunnels/{url_part}',
    summary: 'Close a tunnel and delete it',
    answer: null,
    errors: [404, 409],
  },
  ...inspectionOperations(),
  get('/healthz', 'getLiveness', 'Check that the process answers', Alive),
  get('/readyz', 'getReadiness', 'Check that the session and all tunnels are online', Ready, { errors: [503] }),
  get('/status', 'getStatus', 'Show the status of the agent', StatusReport),
  get('/metrics', 'getMetrics', 'Metrics for Prometheus', 'text/plain'),
  get('/openapi.json', 'getOpenApi', 'This document', z.record(z.string(), z.unknown())),
];

function inspectionOperations(): Operation[] {
  const tunnel = '/tunnels/{url_part}';
  const one = `${tunnel}/requests/{id}`;
  const errors: Operation['errors'] = [404, 409];
  const reveal = { query: RevealQuery, errors };
  return [
    get(`${tunnel}/inspection`, 'getInspection', 'Show whether a tunnel is inspected', InspectionReport, { errors }),
    {
      id: 'startInspection',
      method: 'put',
      path: `${tunnel}/inspection`,
      summary: 'Inspect the traffic of a tunnel for some time',
      body: InspectionRequest,
      answer: InspectionReport,
      errors: [404, 409, 413, 415, 503],
    },
    {
      id: 'stopInspection',
      method: 'delete',
      path: `${tunnel}/inspection`,
      summary: 'Stop inspecting a tunnel; captured requests stay for an hour',
      answer: null,
      errors,
    },
    get(`${tunnel}/requests`, 'listRequests', 'List captured requests, newest first', z.array(RequestSummary), {
      query: RequestsQuery,
      errors,
    }),
    {
      id: 'forgetRequests',
      method: 'delete',
      path: `${tunnel}/requests`,
      summary: 'Forget the captured requests of a tunnel',
      answer: null,
      errors,
    },
    get(
      `${tunnel}/requests/events`,
      'watchRequests',
      'Requests as they come, as server-sent events',
      'text/event-stream',
      {
        query: RevealQuery,
        errors: [404, 409, 503],
      },
    ),
    get(
      `${tunnel}/requests.har`,
      'exportRequests',
      'Export captured requests as HAR 1.2',
      z.record(z.string(), z.unknown()),
      {
        query: HarQuery,
        errors,
      },
    ),
    get(one, 'getRequest', 'Show a captured request', RequestDetail, reveal),
    get(
      `${one}/messages`,
      'listMessages',
      'List the messages of a WebSocket, or server-sent events',
      z.array(MessageReport),
      {
        query: MessagesQuery,
        errors,
      },
    ),
    get(`${one}/request/body`, 'getRequestBody', 'Download the body of a request', 'application/octet-stream', reveal),
    get(
      `${one}/response/body`,
      'getResponseBody',
      'Download the body of a response',
      'application/octet-stream',
      reveal,
    ),
    {
      id: 'replayRequest',
      method: 'post',
      path: `${one}/replay`,
      summary: 'Send a captured request to the upstream again, unchanged or edited',
      query: RevealQuery,
      body: ReplayRequest,
      answer: RequestDetail,
      errors: [404, 409, 413, 415, 503],
    },
  ];
}

type Details = Pick<Operation, 'query' | 'errors'>;

function get(path: string, id: string, summary: string, answer: Operation['answer'], details: Details = {}): Operation {
  return { id, method: 'get', path, summary, answer, ...details };
}

/** Describes the agent's API as an OpenAPI 3.1 document, from the schemas that validate its requests. */
export function openApiDocument(version: string): Json {
  const paths: Record<string, Json> = {};
  for (const operation of OPERATIONS) {
    paths[operation.path] = { ...paths[operation.path], [operation.method]: describe(operation) };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Device agent API',
      version,
      description: 'Calls on loopback need no token; all others do. Unknown query parameters are refused.',
    },
    servers: [{ url: '/' }],
    security: [{}, { apiToken: [] }],
    paths,
    components: {
      securitySchemes: { apiToken: { type: 'http', scheme: 'bearer' } },
      schemas: { Error: jsonSchema(ErrorBody.required(), 'output') },
      responses: Object.fromEntries(
        Object.entries(ERRORS).map(([status, text]) => [`Error${status}`, errorResponse(text)]),
      ),
    },
  };
}

function describe({ id, summary, path, query, body, examples, answer, links, errors = [] }: Operation): Json {
  const pathParameters = [...(path.includes('{url_part}') ? [URL_PART] : []), ...(path.includes('{id}') ? [ID] : [])];
  return {
    operationId: id,
    summary,
    parameters: [...pathParameters, ...queryParameters(query)],
    ...(body && { requestBody: requestBody(body, examples) }),
    responses: {
      ...success(answer, links),
      ...Object.fromEntries(
        [...ALWAYS, ...errors].map((status) => [status, { $ref: `#/components/responses/Error${status}` }]),
      ),
    },
  };
}

function requestBody(body: z.ZodType, examples: Operation['examples'] = {}): Json {
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
  description: 'The id of a captured request.',
  schema: { type: 'string' },
};

/** The tunnel that was created, for {@link URL_PART}. */
const CREATED = '$response.body#/domain';

function queryParameters(query: z.ZodObject | undefined): Json[] {
  const { properties = {} } = query ? jsonSchema(query, 'input') : {};
  return Object.entries(properties as Record<string, Json>).map(([name, schema]) => ({ name, in: 'query', schema }));
}

function success(answer: Operation['answer'], links: readonly string[] = []): Json {
  if (answer === null) return { 204: { description: 'Done.' } };
  const content =
    typeof answer === 'string'
      ? { [answer]: { schema: { type: 'string' } } }
      : { 'application/json': { schema: jsonSchema(answer, 'output') } };
  const linked = links.map((operationId) => [operationId, { operationId, parameters: { url_part: CREATED } }]);
  return { 200: { description: 'Done.', content, ...(links.length > 0 && { links: Object.fromEntries(linked) }) } };
}
