import { type ApiError, errorBody } from '../../../lib/errors.ts';
import type { ClientRequest, ClientResponse } from './client-message.ts';

/** Header that marks an answer as the edge's own; upstreams can never set it. */
export const ERROR_CODE_HEADER = 'ngrok-error-code';

/** What an answer needs to know of its request. */
type Asked = Pick<ClientRequest, 'headers' | 'complete'>;

/** Stands for what was no request. */
export const WITHOUT_REQUEST: Asked = { headers: {}, complete: true };

/** What an error is written to: a response of the edge's or one of Node's. */
interface ErrorResponse extends Pick<ClientResponse, 'headersSent' | 'destroyed' | 'shouldKeepAlive'> {
  writeHead(status: number, headers: string[]): unknown;
  end(last: Buffer): unknown;
}

/**
 * Answers a request with an error of the edge: a small page for browsers, JSON for everybody else.
 * Does nothing when an answer has begun already.
 *
 * @param more flat name, value list of headers beside its own
 */
export function answerError(req: Asked, res: ErrorResponse, error: ApiError, more: readonly string[] = []): void {
  if (res.headersSent || res.destroyed) return;
  const html = prefersHtml(req.headers.accept);
  const body = Buffer.from(html ? page(error) : `${JSON.stringify(errorBody(error))}\n`);
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

/**
 * A client that waits for leave to send its body (`Expect: 100-continue`) and gets the final answer
 * instead may or may not send it (RFC 9110, 10.1.1): what follows could be read as either.
 */
export function closeUnlessBodyRead(req: Asked, res: Pick<ClientResponse, 'shouldKeepAlive'>): void {
  if (req.headers.expect !== undefined && !req.complete) res.shouldKeepAlive = false;
}

/** Browsers name text/html first; curl and libraries say anything goes. */
function prefersHtml(accept = ''): boolean {
  const html = accept.indexOf('text/html');
  const json = accept.indexOf('application/json');
  return html !== -1 && (json === -1 || html < json);
}

function page({ status, code, message }: ApiError): string {
  return `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${status}</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:36em;margin:4em auto;padding:0 1em}</style>
<h1>${status}</h1>
<p>${escapeHtml(message)}</p>
<p><small>${escapeHtml(code)}</small></p>
</html>
`;
}

function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
