import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { type ApiError, errorBody } from '../../../lib/errors.ts';
import { noticePage, type PageNotice } from '../../../lib/http/notice-page.ts';
import type { ClientRequest, ClientResponse } from './client-message.ts';

/** Header that marks errors of the edge; upstreams cannot set it. */
export const ERROR_CODE_HEADER = 'ngrok-error-code';

type AnsweredRequest = Pick<ClientRequest, 'headers' | 'complete'>;

export const WITHOUT_REQUEST: AnsweredRequest = { headers: {}, complete: true };

interface ErrorResponse extends Pick<ClientResponse, 'headersSent' | 'destroyed' | 'shouldKeepAlive'> {
  writeHead(status: number, headers: string[]): unknown;
  end(last: Buffer): unknown;
}

/**
 * Answers a request with an error of the edge, unless a response has begun: a small page for browsers, else JSON.
 * @param more further headers, flat name, value list
 * @param extra what the page has besides
 */
export function answerError(
  req: AnsweredRequest,
  res: ErrorResponse,
  error: ApiError,
  more: readonly string[] = [],
  extra: Partial<PageNotice> = {},
): void {
  if (res.headersSent || res.destroyed) return;
  const html = prefersHtml(req.headers.accept);
  const body = Buffer.from(html ? page(error, extra) : `${JSON.stringify(errorBody(error))}\n`);
  const headers = [
    'content-type',
    html ? 'text/html; charset=utf-8' : 'application/json',
    'content-length',
    String(body.length),
    'cache-control',
    'no-store',
    ERROR_CODE_HEADER,
    error.code,
    ...more,
  ];
  if (error.retryAfter !== null) headers.push('retry-after', String(error.retryAfter));
  closeUnlessBodyRead(req, res);
  res.writeHead(error.status, headers);
  res.end(body);
}

/** An error of the edge as the last message of an HTTP/1.1 connection whose requests are not read. */
export function errorMessage(error: ApiError): Buffer {
  const { status } = error;
  const lines = [`HTTP/1.1 ${status} ${STATUS_CODES[status]}`, 'connection: close'];
  let body: Buffer = Buffer.alloc(0);
  answerError(
    WITHOUT_REQUEST,
    {
      ...{ headersSent: false, destroyed: false, shouldKeepAlive: false },
      writeHead(_status, headers) {
        for (let at = 0; at < headers.length; at += 2) lines.push(`${headers[at]}: ${headers[at + 1]}`);
      },
      end(last) {
        body = last;
      },
    },
    error,
  );
  return Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`), body]);
}

/** Closes after a final response to `Expect: 100-continue`: the client may or may not send its body (RFC 9110, 10.1.1). */
export function closeUnlessBodyRead(req: AnsweredRequest, res: Pick<ClientResponse, 'shouldKeepAlive'>): void {
  if (req.headers.expect !== undefined && !req.complete) res.shouldKeepAlive = false;
}

/** Browsers list text/html first; curl and libraries accept anything. */
function prefersHtml(accept = ''): boolean {
  const html = accept.indexOf('text/html');
  const json = accept.indexOf('application/json');
  return html !== -1 && (json === -1 || html < json);
}

function page({ status, code, message }: ApiError, extra: Partial<PageNotice>): string {
  return noticePage({ title: `${status} ${STATUS_CODES[status] ?? ''}`.trim(), text: message, detail: code, ...extra });
}

/** Closes a connection so that the peer cannot mistake it for an orderly end. */
export function resetConnection(socket: Socket): void {
  // Node resets plain connections only; for TLS, a missing close_notify tells as much.
  if (socket instanceof TLSSocket) socket.destroy();
  else socket.resetAndDestroy();
}

const REQUEST_LINE = /^[A-Z]{3,10} \S+ HTTP\/1\.[01]\r\n/;
const HOST = /\r\nHost:[ \t]*([a-z0-9.-]{1,253}(?::\d{1,5})?)[ \t]*\r\n/i;

/** What a client reads that speaks HTTP without TLS to the port for TLS, such as a browser; null when it does not. */
export function answerToPlainHttp(begin: Buffer | null): string | null {
  const request = begin?.toString('latin1', 0, 8192) ?? '';
  if (!REQUEST_LINE.test(request)) return null;
  // Only what a host name can be made of gets into the page.
  const host = HOST.exec(request)?.[1];
  const url = host === undefined ? null : `https://${host}/`;
  const instead = url === null ? 'a URL that starts with https://' : `<a href="${url}">${url}</a>`;
  const page = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>This port needs HTTPS</title>
<h1>This port needs HTTPS</h1>
<p>The request came without TLS (http://). Open ${instead} instead.</p>
</html>
`;
  const head = [
    'HTTP/1.1 400 Bad Request',
    'Content-Type: text/html; charset=utf-8',
    `Content-Length: ${Buffer.byteLength(page)}`,
    "Content-Security-Policy: default-src 'none'",
    'Cache-Control: no-store',
    'Connection: close',
  ];
  return `${head.join('\r\n')}\r\n\r\n${request.startsWith('HEAD ') ? '' : page}`;
}
