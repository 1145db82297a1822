import type { PolicyRequest } from '../../traffic-policy/steps.ts';
import { headerLine } from './header-fields.ts';

/**
 * A request line and headers as they go to the upstream.
 *
 * @param chunked whether a body follows in chunks; a length is among the headers
 * @param upgrade the protocol that the client asks for
 * @throws {Error} when a header holds what cannot be sent
 */
export function requestHead({ method, target, headers }: PolicyRequest, chunked: boolean, upgrade?: string): Buffer {
  let text = `${method} ${target} HTTP/1.1\r\n`;
  for (let at = 0; at < headers.length; at += 2) {
    text += headerLine(headers[at] as string, headers[at + 1] as string);
  }
  if (chunked) text += 'Transfer-Encoding: chunked\r\n';
  if (upgrade !== undefined) text += `Connection: Upgrade\r\nUpgrade: ${upgrade}\r\n`;
  return Buffer.from(`${text}\r\n`, 'latin1');
}
