import { runInTurns, type Stepwise } from '../../lib/stepwise.ts';
import { type BodyContent, bodyContent } from './body-content.ts';
import type { CapturedExchange, CapturedMessage, ExchangeMessage } from './captured-exchange.ts';
import { maskText } from './masking/mask-text.ts';
import { fieldValue, type HeaderField } from './parsing/message-head.ts';
import { durationOf, hostHeader, shownBytes, shownExchange, shownReport, timingOf } from './shown-exchange.ts';

export interface HarOptions {
  version: string;
  url: string;
  reveal: boolean;
}

const UNKNOWN = -1;
const WEBSOCKET_OPCODES = { text: 1, binary: 2, close: 8, event: 1 } as const;

/** Writes exchanges as an HTTP archive (HAR 1.2), piece by piece: all of them together may be large. */
export async function* harText(exchanges: Iterable<CapturedExchange>, options: HarOptions): AsyncGenerator<string> {
  const creator = { name: 'device-agent', version: options.version };
  yield `{"log":{"version":"1.2","creator":${JSON.stringify(creator)},"pages":[],"entries":[`;
  let separator = '\n';
  for (const exchange of exchanges) {
    // Forgotten since the export began, or not a request.
    if (!exchange.isHeld || (exchange.request.head === '' && !exchange.isOnlyReported)) continue;
    yield separator + JSON.stringify(await harEntry(exchange, options));
    separator = ',\n';
  }
  yield '\n]}}\n';
}

async function harEntry(exchange: CapturedExchange, options: HarOptions): Promise<object> {
  const { request, response, kind, error, report } = exchange;
  const shown = shownExchange(exchange, options.reveal);
  const requestBody = await bodyContent(request, shown.requestHeaders, options.reveal);
  const responseBody = response && (await bodyContent(response, shown.responseHeaders, options.reveal));
  const url = urlOf(shown.path, hostHeader(shown.requestHeaders) ?? report?.host, options);
  const timing = timingOf(exchange);
  return {
    startedDateTime: new Date(exchange.startedAt).toISOString(),
    time: durationOf(exchange),
    request: {
      method: request.line.method,
      url,
      httpVersion: request.line.httpVersion === '' ? '' : `HTTP/${request.line.httpVersion}`,
      cookies: cookiesIn(shown.requestHeaders),
      headers: shown.requestHeaders,
      queryString: queryOf(url),
      ...(requestBody && { postData: postData(requestBody) }),
      headersSize: exchange.isOnlyReported ? UNKNOWN : request.head.length,
      bodySize: request.bodySize,
    },
    response: {
      // As Chrome writes requests without a response.
      status: exchange.status ?? 0,
      statusText: response?.line.statusText ?? '',
      httpVersion: `HTTP/${response?.line.httpVersion ?? '1.1'}`,
      cookies: setCookiesIn(shown.responseHeaders),
      headers: shown.responseHeaders,
      content: content(response, responseBody),
      redirectURL: fieldValue(shown.responseHeaders, 'location') ?? '',
      headersSize: response?.head.length ?? UNKNOWN,
      bodySize: response?.bodySize ?? UNKNOWN,
      ...(error !== null && { _error: error }),
    },
    cache: {},
    timings: {
      send: timing.sendingMs ?? 0,
      wait: timing.waitingMs ?? 0,
      receive: timing.receivingMs ?? 0,
    },
    ...(error !== null && { comment: error }),
    ...(report && { _gateway: shownReport(report, options.reveal) }),
    ...(kind === 'websocket' && {
      _resourceType: 'websocket',
      _webSocketMessages: await runInTurns(webSocketMessages(exchange.messages ?? [], options.reveal)),
    }),
  };
}

/** The URL that the client asked for: the tunnel's scheme, and the host that it named. */
function urlOf(path: string, named: string | undefined, { url }: HarOptions): string {
  if (URL.canParse(path)) return path;
  const { protocol, host } = new URL(url);
  return `${protocol}//${named || host}${path}`;
}

function queryOf(url: string): HeaderField[] {
  if (!URL.canParse(url)) return [];
  return [...new URL(url).searchParams].map(([name, value]) => ({ name, value }));
}

function postData({ contentType, bytes, text }: BodyContent): object {
  const mimeType = contentType ?? '';
  if (text !== null) return { mimeType, text };
  return { mimeType, text: bytes.toString('base64'), _encoding: 'base64' };
}

function content(response: CapturedMessage<unknown> | null, body: BodyContent | null): object {
  if (body === null) return { size: 0, mimeType: 'x-unknown' };
  const { contentType, bytes, text, truncated } = body;
  return {
    size: bytes.length,
    ...(response && response.bodySize < bytes.length && { compression: bytes.length - response.bodySize }),
    mimeType: contentType ?? 'x-unknown',
    ...(text === null ? { text: bytes.toString('base64'), encoding: 'base64' } : { text }),
    ...(truncated && { comment: 'truncated' }),
  };
}

function* webSocketMessages(messages: readonly ExchangeMessage[], reveal: boolean): Stepwise<object[]> {
  const shown: object[] = [];
  for (const message of messages) {
    shown.push(webSocketMessage(message, reveal));
    yield;
  }
  return shown;
}

function webSocketMessage(message: ExchangeMessage, reveal: boolean): object {
  const { from, type, at, data, error } = message;
  const isBytes = type === 'binary' || error !== null;
  const text = data.toString('utf8');
  return {
    type: from === 'client' ? 'send' : 'receive',
    time: at / 1_000,
    opcode: WEBSOCKET_OPCODES[type],
    data: isBytes ? shownBytes(message, reveal).toString('base64') : reveal ? text : maskText(text, null),
    ...(error !== null && { _error: error }),
  };
}

function cookiesIn(fields: readonly HeaderField[]): HeaderField[] {
  return (fieldValue(fields, 'cookie') ?? '').split(/; */).filter(Boolean).map(pairOf);
}

function setCookiesIn(fields: readonly HeaderField[]): HeaderField[] {
  const all = fields.filter(({ name }) => name.toLowerCase() === 'set-cookie');
  return all.map(({ value }) => pairOf(value.split(';')[0] ?? ''));
}

function pairOf(text: string): HeaderField {
  const at = text.indexOf('=');
  return at === -1 ? { name: text, value: '' } : { name: text.slice(0, at), value: text.slice(at + 1) };
}
