import { z } from 'zod';
import { ReportedRule } from '../../../agent-protocol/request-report.ts';
import { EXCHANGE_KINDS, EXCHANGE_STATES, MESSAGE_TYPES } from '../../inspector/captured-exchange.ts';

const Count = z.int().nonnegative();
const Milliseconds = z.number().nonnegative();

/** Whether a tunnel is inspected, and what is held of it. */
export const InspectionReport = z.object({
  state: z.enum(['on', 'off']),
  /** When it ends automatically; null while it is off. */
  until: z.iso.datetime().nullable(),
  requests: Count,
  /** Bytes that the captured requests of all tunnels take, and the limit. */
  held_bytes: Count,
  max_bytes: Count,
  /** More of a body is not captured. */
  max_body_bytes: Count,
  /** Whether the gateway reports requests with the rules that acted: only gateways of this project do. */
  gateway_reports: z.enum(['on', 'unavailable', 'off']),
  /** Requests that the gateway has not reported: too many came at a time. */
  gateway_missed: Count,
});
export type InspectionReport = z.infer<typeof InspectionReport>;

export const RequestSummary = z.object({
  id: z.string(),
  state: z.enum(EXCHANGE_STATES),
  kind: z.enum(EXCHANGE_KINDS),
  method: z.string(),
  path: z.string(),
  host: z.string().nullable(),
  status: z.int().nullable(),
  client: z.string().nullable(),
  started_at: z.iso.datetime(),
  /** So far, while it is open. */
  duration_ms: Milliseconds,
  /** Bodies as sent, without chunked transfer coding. */
  request_bytes: Count,
  response_bytes: Count,
  content_type: z.string().nullable(),
  /** Messages of a WebSocket, or server-sent events. */
  messages: Count,
  replay_of: z.string().nullable(),
  /** Whose response the client got; `endpoint`: of an internal endpoint. Null while the gateway has not reported it. */
  answered_by: z.enum(['upstream', 'gateway', 'endpoint']).nullable(),
  /** False for requests that never reached the agent: it has only what the gateway reports. */
  captured: z.boolean(),
  error: z.string().nullable(),
});
export type RequestSummary = z.infer<typeof RequestSummary>;

const Header = z.object({ name: z.string(), value: z.string() });

/** A body, decoded: exactly one of `text` and `base64` is not null. */
export const BodyReport = z.object({
  bytes: Count,
  captured_bytes: Count,
  truncated: z.boolean(),
  content_type: z.string().nullable(),
  content_encoding: z.string().nullable(),
  text: z.string().nullable(),
  base64: z.string().nullable(),
  decoded_bytes: Count,
  error: z.string().nullable(),
});
export type BodyReport = z.infer<typeof BodyReport>;

const Message = z.object({
  headers: z.array(Header),
  trailers: z.array(Header),
  body: BodyReport.nullable(),
});

export const GatewayReport = z.object({
  /** Path and query as the client sent it. */
  path: z.string(),
  /** As it went to the upstream; null when it did not. */
  upstream_path: z.string().nullable(),
  client: z.string(),
  /** What the client got; null without a response. */
  status: z.int().nullable(),
  /** Of an error page of the gateway. */
  error_code: z.string().nullable(),
  /** From the request's arrival until the response began. */
  duration_ms: Milliseconds,
  /** Those whose expressions were true, in the order in which they ran, with the actions that ran. */
  rules: z.array(ReportedRule),
});
export type GatewayReport = z.infer<typeof GatewayReport>;

export const RequestDetail = RequestSummary.extend({
  http_version: z.string(),
  request: Message,
  response: Message.extend({ http_version: z.string(), status_text: z.string() }).nullable(),
  timing: z.object({
    sending_ms: Milliseconds.nullable(),
    waiting_ms: Milliseconds.nullable(),
    receiving_ms: Milliseconds.nullable(),
  }),
  /** Null while the gateway has not reported it, and for replays. */
  gateway: GatewayReport.nullable(),
  masked: z.boolean(),
  /** Whether it can be sent again without another body. */
  replayable: z.boolean(),
});
export type RequestDetail = z.infer<typeof RequestDetail>;

/** A message of a WebSocket, or a server-sent event. */
export const MessageReport = z.object({
  number: z.int().positive(),
  from: z.enum(['client', 'upstream']),
  type: z.enum(MESSAGE_TYPES),
  at: z.iso.datetime(),
  bytes: Count,
  truncated: z.boolean(),
  text: z.string().nullable(),
  base64: z.string().nullable(),
  event: z.string().nullable(),
  error: z.string().nullable().meta({ description: 'Why `base64` is what was sent, still compressed, or nothing.' }),
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
