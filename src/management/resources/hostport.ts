import { HOSTNAME_PATTERN, parseHostname } from './hostname.ts';
import type { Refusal } from './refusal.ts';

/** What every accepted hostport matches. */
export const HOSTPORT_PATTERN = new RegExp(HOSTNAME_PATTERN.source.replace('$', ':\\d+$'));

/**
 * Checks a `host:port` and brings its host into canonical form.
 *
 * @param text for example `cam.example.com:443`; the host may be a wildcard
 * @returns the canonical form, or the refusal
 */
export function parseHostport(text: string): string | Refusal {
  const colon = text.lastIndexOf(':');
  const host = colon > 0 ? parseHostname(text.slice(0, colon)) : null;
  const port = text.slice(colon + 1);
  if (typeof host !== 'string' || !/^\d+$/.test(port)) {
    return {
      code: 7104,
      text: `must be host:port${host === null || typeof host === 'string' ? '' : `: ${host.text}`}`,
    };
  }
  const number = Number(port);
  if (number < 1 || number > 65535) return { code: 7112, text: 'the port must be from 1 to 65535' };
  return `${host}:${number}`;
}
