import type { RequestReport } from '../../agent-protocol/request-report.ts';
import { trimSpace } from '../../lib/http/header-fields.ts';
import { maskUrl } from '../../lib/masking/mask-url.ts';
import { isSecretHeader, MASK } from '../../lib/masking/secret-names.ts';
import type { CapturedExchange } from './captured-exchange.ts';
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
    path: maskUrl(read.path),
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
  const masked = (url: string) => (reveal ? url : maskUrl(url));
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

/** Masks header values that are secrets, and those in URLs of any other header. */
export function maskHeaders(fields: readonly HeaderField[]): HeaderField[] {
  return fields.map(({ name, value }) => ({ name, value: maskHeader(name, value) }));
}

function maskHeader(name: string, value: string): string {
  if (!isSecretHeader(name)) return maskUrl(value);
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

function maskCookie(cookie: string): string {
  const at = cookie.indexOf('=');
  if (at === -1) return cookie === '' ? '' : MASK;
  return `${cookie.slice(0, at)}=${MASK}`;
}
