import { z } from 'zod';
import { ReportedRule } from '../../../agent-protocol/request-report.ts';
import { EXCHANGE_KINDS, EXCHANGE_STATES, MESSAGE_TYPES } from '../../inspector/captured-exchange.ts';

const Count = z.int().nonnegative();
const Milliseconds = z.number().nonnegative();

/** Whether a tunnel is inspected, and what is held of it. */
export const InspectionReport = z.object({
  state: z.enum(['on', 'off']).describe('Whether requests are captured.'),
  until: z.iso.datetime().nullable().describe('When it ends automatically; null while it is off.'),
  requests: Count.describe('How many requests of this tunnel are held.'),
  held_bytes: Count.describe('Bytes that the captured requests of all tunnels take.'),
  max_bytes: Count.describe('The limit of `held_bytes`; the oldest requests are forgotten first.'),
  max_body_bytes: Count.describe('More bytes of a body are not captured.'),
  gateway_reports: z
    .enum(['on', 'unavailable', 'off'])
    .describe('Whether the gateway reports requests with the rules that acted: only gateways of this project do.'),
  gateway_missed: Count.describe('Requests that the gateway has not reported: too many came at a time.'),
});
export type InspectionReport = z.infer<typeof InspectionReport>;

export const RequestSummary = z.object({
  id: z.string().describe('Identifies the request at its tunnel; later ones have higher numbers.'),
  state: z
    .enum(EXCHANGE_STATES)
    .describe(
      '`open`: in progress; `aborted`: the client or the upstream closed the connection early; `failed`: the upstream is unreachable, or what passed is not HTTP/1.1.',
    ),
  kind: z
    .enum(EXCHANGE_KINDS)
    .describe('`events`: the response has server-sent events; `upgrade`: to a protocol other than WebSocket.'),
  method: z.string().describe('The method of the request.'),
  path: z.string().describe('Path and query, as the upstream got them.'),
  host: z.string().nullable().describe('The Host of the request; null without one.'),
  status: z.int().nullable().describe('The status of the response; null without one.'),
  client: z
    .string()
    .nullable()
    .describe('The address of the client, as the gateway names it in X-Forwarded-For; null when it does not.'),
  started_at: z.iso.datetime().describe('When the request began.'),
  duration_ms: Milliseconds.describe(
    'From the head of the request to the end of the response, in milliseconds; so far, while it is open.',
  ),
  request_bytes: Count.describe('Bytes of the body of the request as sent, without chunked transfer coding.'),
  response_bytes: Count.describe('Bytes of the body of the response as sent, without chunked transfer coding.'),
  content_type: z.string().nullable().describe('The content type of the response; null without one.'),
  messages: Count.describe('Messages of a WebSocket, or server-sent events, so far.'),
  replay_of: z
    .string()
    .nullable()
    .describe('The id of the request that this one repeats; null: it came from a client.'),
  answered_by: z
    .enum(['upstream', 'gateway', 'endpoint'])
    .nullable()
    .describe(
      'Whose response the client got; `endpoint`: of an internal endpoint. Null while the gateway has not reported it.',
    ),
  captured: z
    .boolean()
    .describe('False for requests that never reached the agent: it has only what the gateway reports.'),
  error: z.string().nullable().describe('Why the request was aborted or failed; null otherwise.'),
});
export type RequestSummary = z.infer<typeof RequestSummary>;

const Header = z.object({
  name: z.string().describe('The name of the header, as sent.'),
  value: z.string().describe('Its value; secrets are masked without `reveal`.'),
});

/** A body, decoded: exactly one of `text` and `base64` is not null. */
export const BodyReport = z.object({
  bytes: Count.describe('Bytes as sent, without chunked transfer coding.'),
  captured_bytes: Count.describe('How many of them are captured.'),
  truncated: z.boolean().describe('Whether more was sent than this shows.'),
  content_type: z.string().nullable().describe('The Content-Type; null without one.'),
  content_encoding: z.string().nullable().describe('The Content-Encoding, which is undone here; null without one.'),
  text: z.string().nullable().describe('The body as text; null when it is not text.'),
  base64: z.string().nullable().describe('The bytes of the body in base64; null when `text` has it.'),
  decoded_bytes: Count.describe('Bytes after the Content-Encoding was undone.'),
  error: z.string().nullable().describe('Why the Content-Encoding could not be undone; null when it was.'),
});
export type BodyReport = z.infer<typeof BodyReport>;

const Message = z.object({
  headers: z.array(Header).describe('All headers, in the order in which they were sent.'),
  trailers: z.array(Header).describe('Headers that were sent after the body.'),
  body: BodyReport.nullable().describe('The body, decoded; null without one.'),
});

export const GatewayLinkReport = z.object({
  path: z.string().describe('Path and query as the client sent it.'),
  upstream_path: z.string().nullable().describe('Path and query as it went to the upstream; null when it did not.'),
  client: z.string().describe('The address of the client.'),
  status: z.int().nullable().describe('The status that the client got; null without a response.'),
  error_code: z.string().nullable().describe('The code of an error page of the gateway; null without one.'),
  duration_ms: Milliseconds.describe("From the request's arrival until the response began, in milliseconds."),
  rules: z
    .array(ReportedRule)
    .describe('Rules whose expressions were true, in the order in which they ran, with the actions that ran.'),
});
export type GatewayLinkReport = z.infer<typeof GatewayLinkReport>;

export const RequestDetail = RequestSummary.extend({
  http_version: z.string().describe('The version in the request line, such as `HTTP/1.1`.'),
  request: Message.describe('What the upstream got.'),
  response: Message.extend({
    http_version: z.string().describe('The version in the status line, such as `HTTP/1.1`.'),
    status_text: z.string().describe('The reason phrase after the status; may be empty.'),
  })
    .nullable()
    .describe('What the upstream sent; null without a response.'),
  timing: z
    .object({
      sending_ms: Milliseconds.nullable().describe('Milliseconds from the head of the request to its end.'),
      waiting_ms: Milliseconds.nullable().describe('Milliseconds from there to the head of the response.'),
      receiving_ms: Milliseconds.nullable().describe('Milliseconds from there to the end of the response.'),
    })
    .describe('Where the time went; null for what has not ended.'),
  gateway: GatewayLinkReport.nullable().describe(
    'What the gateway reports; null while it has not reported it, and for replays.',
  ),
  masked: z.boolean().describe('Whether something is masked here.'),
  replayable: z.boolean().describe('Whether it can be sent again without another body.'),
});
export type RequestDetail = z.infer<typeof RequestDetail>;

/** A message of a WebSocket, or a server-sent event. */
export const MessageReport = z.object({
  number: z.int().positive().describe('Counts from 1 in its request.'),
  from: z.enum(['client', 'upstream']).describe('Who sent it.'),
  type: z.enum(MESSAGE_TYPES).describe('`event`: a server-sent event; all others: messages of a WebSocket.'),
  at: z.iso.datetime().describe('When it passed.'),
  bytes: Count.describe('Bytes as sent.'),
  truncated: z.boolean().describe('Whether more was sent than this shows.'),
  text: z.string().nullable().describe('The message as text; null when it is not text.'),
  base64: z.string().nullable().describe('Its bytes in base64; null when `text` has it.'),
  event: z.string().nullable().describe('The name of a server-sent event; null for all other messages.'),
  error: z.string().nullable().describe('Why `base64` is what was sent, still compressed, or nothing; null otherwise.'),
});
export type MessageReport = z.infer<typeof MessageReport>;

/** The first event of the live feed of requests, `snapshot`. */
export interface RequestsSnapshot {
  readonly inspection: InspectionReport;
  readonly requests: readonly RequestSummary[];
}

/** Each following event, `change`: only what is new. */
export interface RequestsChange {
  readonly inspection?: InspectionReport;
  readonly requests?: readonly RequestSummary[];
  /** Ids of those that are no longer held. */
  readonly removed?: readonly string[];
  readonly skipped?: number;
}
