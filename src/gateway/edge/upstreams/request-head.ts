import { headerLine } from '../http/header-fields.ts';
import type { OutgoingRequest } from './upstream-link.ts';

/** Formats the request line and headers; throws when a header contains invalid characters. */
export function requestHead({ request, body, awaitsContinue, trailers, upgrade }: OutgoingRequest): Buffer {
  const { method, target, headers } = request;
  let text = `${method} ${target} HTTP/1.1\r\n`;
  for (let at = 0; at < headers.length; at += 2) {
    text += headerLine(headers[at] as string, headers[at + 1] as string);
  }
  if (body === 'chunked') text += 'Transfer-Encoding: chunked\r\n';
  if (awaitsContinue) text += 'Expect: 100-continue\r\n';
  if (upgrade !== undefined) text += `Connection: Upgrade\r\nUpgrade: ${upgrade}\r\n`;
  // The Connection header has to list TE (RFC 9110, 10.1.4).
  else if (trailers) text += 'TE: trailers\r\nConnection: TE\r\n';
  return Buffer.from(`${text}\r\n`, 'latin1');
}
