import { hostOf as hostPartOf } from '../../../lib/network/ip-address.ts';
import { type BodyContent, bodyContent } from '../../inspector/body-content.ts';
import type { CaptureStore } from '../../inspector/capture-store.ts';
import {
  type CapturedExchange,
  type CapturedMessage,
  type ExchangeMessage,
  MAX_BODY,
} from '../../inspector/captured-exchange.ts';
import type { Inspector } from '../../inspector/inspector.ts';
import { maskText } from '../../inspector/masking/mask-text.ts';
import { fieldValue } from '../../inspector/parsing/message-head.ts';
import { canReplay } from '../../inspector/replay.ts';
import {
  clientOf,
  durationOf,
  hostHeader,
  type ShownExchange,
  shownBytes,
  shownExchange,
  shownReport,
  timingOf,
} from '../../inspector/shown-exchange.ts';
import type {
  BodyReport,
  InspectionReport,
  MessageReport,
  RequestDetail,
  RequestSummary,
} from './inspection-reports.ts';

export function presentInspection(tunnelId: string, inspector: Inspector): InspectionReport {
  const { store } = inspector;
  const until = inspector.until(tunnelId);
  return {
    state: until === null ? 'off' : 'on',
    until: until?.toISOString() ?? null,
    requests: store.countOf(tunnelId),
    ...presentMemory(store),
    gateway_reports: until === null ? 'off' : inspector.isReported(tunnelId) ? 'on' : 'unavailable',
    gateway_missed: inspector.reports.missed(tunnelId),
  };
}

function presentMemory({ held, max }: CaptureStore) {
  return { held_bytes: held, max_bytes: max, max_body_bytes: MAX_BODY };
}

export function presentSummary(exchange: CapturedExchange, reveal: boolean): RequestSummary {
  return summary(exchange, shownExchange(exchange, reveal));
}

export async function presentExchange(exchange: CapturedExchange, reveal: boolean): Promise<RequestDetail> {
  const { request, response, report } = exchange;
  const shown = shownExchange(exchange, reveal);
  const { sendingMs, waitingMs, receivingMs } = timingOf(exchange);
  const requestBody = await bodyContent(request, shown.requestHeaders, reveal);
  const responseBody = response && (await bodyContent(response, shown.responseHeaders, reveal));
  return {
    ...summary(exchange, shown),
    http_version: request.line.httpVersion,
    request: {
      headers: shown.requestHeaders,
      trailers: shown.requestTrailers,
      body: requestBody && presentBody(request, requestBody),
    },
    response: response && {
      http_version: response.line.httpVersion,
      status_text: response.line.statusText,
      headers: shown.responseHeaders,
      trailers: shown.responseTrailers,
      body: responseBody && presentBody(response, responseBody),
    },
    timing: { sending_ms: sendingMs, waiting_ms: waitingMs, receiving_ms: receivingMs },
    gateway: report && shownReport(report, reveal),
    masked: shown.masked || requestBody?.masked === true || responseBody?.masked === true,
    replayable: canReplay(exchange),
  };
}

export function presentMessage(message: ExchangeMessage, reveal: boolean): MessageReport {
  const { number, from, type, at, size, data, truncated, event, error } = message;
  const isText = error === null && (type === 'text' || type === 'event');
  const text = data.toString('utf8');
  return {
    number,
    from,
    type,
    at: new Date(at).toISOString(),
    bytes: size,
    truncated,
    text: isText ? (reveal ? text : maskText(text, null)) : null,
    base64: isText ? null : shownBytes(message, reveal).toString('base64'),
    event,
    error,
  };
}

function summary(exchange: CapturedExchange, { path, requestHeaders, responseHeaders }: ShownExchange): RequestSummary {
  const { id, state, kind, request, response, startedAt, messageCount, replayOf, error, report } = exchange;
  return {
    id: String(id),
    state,
    kind,
    method: request.line.method,
    path,
    host: hostHeader(requestHeaders) ?? report?.host ?? null,
    status: exchange.status,
    client: clientOf(requestHeaders) ?? (report && hostPartOf(report.client)),
    started_at: new Date(startedAt).toISOString(),
    duration_ms: durationOf(exchange),
    request_bytes: request.bodySize,
    response_bytes: response?.bodySize ?? 0,
    content_type: fieldValue(responseHeaders, 'content-type'),
    messages: messageCount,
    replay_of: replayOf === null ? null : String(replayOf),
    captured: !exchange.isOnlyReported,
    answered_by: report === null || report.by === 'nobody' ? null : report.by,
    error,
  };
}

function presentBody(message: CapturedMessage<unknown>, content: BodyContent): BodyReport {
  const { contentType, contentEncoding, bytes, text, decodedBytes, truncated, error } = content;
  return {
    bytes: message.bodySize,
    captured_bytes: message.body?.length ?? 0,
    truncated,
    content_type: contentType,
    content_encoding: contentEncoding,
    text,
    base64: text === null ? bytes.toString('base64') : null,
    decoded_bytes: decodedBytes,
    error,
  };
}
