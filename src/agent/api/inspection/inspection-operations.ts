import { z } from 'zod';
import { ReplayRequest } from '../../inspector/replay.ts';
import type { Operations } from '../agent-operations.ts';
import { querySchema } from '../agent-routes.ts';
import { InspectionReport, MessageReport, RequestDetail, RequestSummary } from './inspection-reports.ts';
import { STATUS_FILTER } from './shown-requests.ts';

const MAX_DURATION_S = 86_400;
const DEFAULT_DURATION_S = 900;

/** Body of `PUT /tunnels/{url_part}/inspection`. */
const InspectionRequest = z.strictObject({
  duration_seconds: z
    .int()
    .min(1)
    .max(MAX_DURATION_S)
    .default(DEFAULT_DURATION_S)
    .describe('Seconds until it ends automatically.'),
});

const Reveal = z.enum(['true', 'false']).optional().describe('Shows secrets, which are masked otherwise.');
const Id = z.coerce.number().int().positive();

const FILTERS = {
  method: z.string().max(64).optional().describe('Only requests with this method, in any case.'),
  path: z.string().max(1_024).optional().describe('Contained in path and query, as sent or decoded.'),
  status: z
    .string()
    .regex(STATUS_FILTER, 'must be a status such as 404, a class such as 5xx, or none')
    .optional()
    .describe('404, 5xx, or none without a response.'),
  min_duration_ms: z.coerce
    .number()
    .min(0)
    .optional()
    .meta({ type: 'number', description: 'Only requests that took at least so many milliseconds.' }),
  reveal: Reveal,
};

const RequestsQuery = querySchema({
  ...FILTERS,
  limit: z.coerce
    .number()
    .int()
    .min(1)
    .max(1_000)
    .default(100)
    .meta({ type: 'integer', description: 'At most so many requests.' }),
  before: Id.optional().meta({ type: 'integer', description: 'Only requests older than the one with this id.' }),
});
const HarQuery = querySchema(FILTERS);
const RevealQuery = querySchema({ reveal: Reveal });
const MessagesQuery = querySchema({
  after: z.coerce
    .number()
    .int()
    .min(0)
    .default(0)
    .meta({ type: 'integer', description: 'Only messages after the one with this number.' }),
  reveal: Reveal,
});

const TUNNEL = '/tunnels/{url_part}';
const REQUEST = '/tunnels/{url_part}/requests/{id}';

export const INSPECTION_OPERATIONS = {
  getInspection: {
    method: 'get',
    path: `${TUNNEL}/inspection`,
    summary: 'Show whether a tunnel is inspected',
    answer: InspectionReport,
    errors: [404, 409],
  },
  startInspection: {
    method: 'put',
    path: `${TUNNEL}/inspection`,
    summary: 'Inspect the traffic of a tunnel for some time',
    body: InspectionRequest,
    answer: InspectionReport,
    errors: [404, 409, 413, 415, 503],
  },
  stopInspection: {
    method: 'delete',
    path: `${TUNNEL}/inspection`,
    summary: 'Stop inspecting a tunnel; captured requests stay for an hour',
    answer: null,
    errors: [404, 409],
  },
  listRequests: {
    method: 'get',
    path: `${TUNNEL}/requests`,
    summary: 'List captured requests, newest first',
    query: RequestsQuery,
    answer: z.array(RequestSummary),
    errors: [404, 409],
  },
  forgetRequests: {
    method: 'delete',
    path: `${TUNNEL}/requests`,
    summary: 'Forget the captured requests of a tunnel',
    answer: null,
    errors: [404, 409],
  },
  watchRequests: {
    method: 'get',
    path: `${TUNNEL}/requests/events`,
    summary: 'Requests as they come, as server-sent events',
    query: RevealQuery,
    answer: 'text/event-stream',
    errors: [404, 409, 503],
  },
  exportRequests: {
    method: 'get',
    path: `${TUNNEL}/requests.har`,
    summary: 'Export captured requests as HAR 1.2',
    query: HarQuery,
    answer: 'application/json',
    errors: [404, 409],
  },
  getRequest: {
    method: 'get',
    path: REQUEST,
    summary: 'Show a captured request',
    query: RevealQuery,
    answer: RequestDetail,
    errors: [404, 409],
  },
  listMessages: {
    method: 'get',
    path: `${REQUEST}/messages`,
    summary: 'List the messages of a WebSocket, or server-sent events',
    query: MessagesQuery,
    answer: z.array(MessageReport),
    errors: [404, 409],
  },
  getRequestBody: {
    method: 'get',
    path: `${REQUEST}/request/body`,
    summary: 'Download the body of a request',
    query: RevealQuery,
    answer: 'application/octet-stream',
    errors: [404, 409],
  },
  getResponseBody: {
    method: 'get',
    path: `${REQUEST}/response/body`,
    summary: 'Download the body of a response',
    query: RevealQuery,
    answer: 'application/octet-stream',
    errors: [404, 409],
  },
  replayRequest: {
    method: 'post',
    path: `${REQUEST}/replay`,
    summary: 'Send a captured request to the upstream again, unchanged or edited',
    query: RevealQuery,
    body: ReplayRequest,
    answer: RequestDetail,
    errors: [404, 409, 413, 415, 503],
  },
} as const satisfies Operations;
