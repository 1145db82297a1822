import type { RequestReport } from '../../agent-protocol/request-report.ts';
import { trimSpace } from '../../lib/http/header-fields.ts';
import { isSecretHeader, isSecretMember, MASK } from '../../lib/masking/secret-names.ts';
import type { CapturedExchange, ExchangeMessage } from './captured-exchange.ts';
import { maskBytes, maskHeaderValue, maskTarget } from './masking/mask-text.ts';
import { fieldValue, type HeaderField, headerFields } from './parsing/message-head.ts';

/** The parts of an exchange that its heads have, for people. */
export interface ShownExchange {
  /** Path and query, as in the request. */
  path: string;
  requestHeaders: HeaderField[];
  requestTrailers: HeaderField[];
  responseHeaders: HeaderField[];
  responseTrailers: HeaderField[];
  masked: boolean;
}

/** Reads the heads of an exchange. */
export function shownExchange({ request, response }: CapturedExchange, reveal: boolean): ShownExchange {
  const read = {
    path: request.line.target,
    requestHeaders: headerFields(request.head),
    requestTrailers: headerFields(request.trailers, true),
    responseHeaders: headerFields(response?.head ?? ''),
    responseTrailers: headerFields(response?.trailers ?? '', true),
  };
  if (reveal) return { ...read, masked: false };
  const shown = {
    path: maskTarget(read.path),
    requestHeaders: maskHeaders(read.requestHeaders),
    requestTrailers: maskHeaders(read.requestTrailers),
    responseHeaders: maskHeaders(read.responseHeaders),
    responseTrailers: maskHeaders(read.responseTrailers),
  };
  return { ...shown, masked: JSON.stringify(shown) !== JSON.stringify(read) };
}

/** The last address in X-Forwarded-For, which the gateway wrote; clients can make up those before it. */
export function clientOf(requestHeaders: readonly HeaderField[]): string | null {
  const all = requestHeaders.filter(({ name }) => name.toLowerCase() === 'x-forwarded-for');
  return trimSpace(all.at(-1)?.value.split(',').at(-1) ?? '') || null;
}

export function hostHeader(requestHeaders: readonly HeaderField[]): string | null {
  return fieldValue(requestHeaders, 'host');
}

export interface Timing {
  /** From the head of the request to its end. */
  sendingMs: number | null;
  /** From there to the head of the response. */
  waitingMs: number | null;
  receivingMs: number | null;
}

export function timingOf({ request, response }: CapturedExchange): Timing {
  const sent = request.endedAt;
  const answered = response?.beganAt ?? null;
  // A response may begin before the request has ended.
  const waitedFrom = sent === null || (answered !== null && sent > answered) ? request.beganAt : sent;
  return {
    sendingMs: between(request.beganAt, sent),
    waitingMs: between(waitedFrom, answered),
    receivingMs: between(answered, response?.endedAt ?? null),
  };
}

/** Milliseconds from its first head to its end, or until now. */
export function durationOf({ request, endedAt }: CapturedExchange): number {
  return between(request.beganAt, endedAt ?? performance.now()) ?? 0;
}

function between(from: number | null, to: number | null): number | null {
  return from === null || to === null ? null : Math.round((to - from) * 100) / 100;
}

/** What the gateway has reported of a request, for people. */
export function shownReport(report: RequestReport, reveal: boolean) {
  const { target, sent, client, status, code, ms, rules } = report;
  const masked = (url: string) => (reveal ? url : maskTarget(url));
  return {
    path: masked(target),
    upstream_path: sent && masked(sent.target),
    client,
    status,
    error_code: code,
    duration_ms: ms,
    rules: rules.map((rule) => {
      const { outcome } = rule;
      return outcome.kind === 'forward' ? { ...rule, outcome: { ...outcome, url: masked(outcome.url) } } : rule;
    }),
  };
}

/** What may be shown of a message that is no text: of one that ends a connection, the status and the reason. */
export function shownBytes({ type, data }: ExchangeMessage, reveal: boolean): Buffer {
  if (reveal || data.length === 0) return data;
  const start = type === 'close' ? 2 : 0;
  return Buffer.concat([
    data.subarray(0, start),
    data.length > start ? maskBytes(data.subarray(start)) : data.subarray(start),
  ]);
}

/** Masks header values that are secrets, and those in URLs and other content of any other header. */
export function maskHeaders(fields: readonly HeaderField[]): HeaderField[] {
  return fields.map(({ name, value }) => ({ name, value: maskHeader(name, value) }));
}

function maskHeader(name: string, value: string): string {
  if (name.toLowerCase() === 'sec-websocket-protocol') return maskProtocols(value);
  if (!isSecretHeader(name)) return maskHeaderValue(value);
  switch (name.toLowerCase()) {
    case 'cookie':
      return value.split(/; */).map(maskCookie).join('; ');
    case 'set-cookie': {
      const [cookie = '', ...attributes] = value.split(/; */);
      return [maskCookie(cookie), ...attributes].join('; ');
    }
    case 'authorization':
    case 'proxy-authorization': {
      const scheme = /^(Basic|Bearer|Digest|Negotiate|NTLM|Token|AWS4-HMAC-SHA256) /i.exec(value)?.[0] ?? '';
      return `${scheme}${MASK}`;
    }
    default:
      return value === '' ? '' : MASK;
  }
}

/** Browsers can send no other header of their own with WebSocket: some pages send tokens as protocols. */
function maskProtocols(value: string): string {
  const protocols = value.split(/, */);
  const isToken = (protocol: string, at: number) => protocol.length > 40 || isSecretMember(protocols[at - 1] ?? '');
  return protocols.map((protocol, at) => (isToken(protocol, at) ? MASK : maskHeaderValue(protocol))).join(', ');
}

function maskCookie(cookie: string): string {
  const at = cookie.indexOf('=');
  if (at === -1) return cookie === '' ? '' : MASK;
  return `${cookie.slice(0, at)}=${MASK}`;
}
