import { trimSpace } from '../../lib/http/trim-space.ts';
export interface MediaType {
  /** For example `text/html`; empty without the header. */
  type: string;
  parameters: Map<string, string>;
}

/** RFC 9110, section 8.3.1. */
export function parseMediaType(header: string): MediaType {
  const [type = '', ...rest] = header.split(';');
  const parameters = new Map<string, string>();
  for (const part of rest) {
    const equals = part.indexOf('=');
    if (equals === -1) continue;
    const value = trimSpace(part, equals + 1);
    parameters.set(trimSpace(part, 0, equals).toLowerCase(), value.replace(/^"(.*)"$/, '$1'));
  }
  return { type: trimSpace(type).toLowerCase(), parameters };
}
