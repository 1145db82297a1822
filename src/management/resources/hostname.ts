import { domainToASCII } from 'node:url';
import { hasInvalidPunycode } from '../../lib/network/punycode.ts';
import type { Refusal } from './refusal.ts';

const UNQUALIFIED: Refusal = { code: 448, text: 'the name is not fully qualified: use a name such as app.example.com' };

/** What every accepted hostname matches. */
export const HOSTNAME_PATTERN = /^(\*\.)?([^\s*_./:]{1,63}\.)+[^\s*_./:]{1,63}\.?$/;

/** Brings a hostname, perhaps a wildcard, into canonical form: lower case, punycode, no trailing dot. */
export function parseHostname(text: string): string | Refusal {
  const name = text.endsWith('.') ? text.slice(0, -1) : text;
  if (name.length > 1024) return { code: 423, text: 'the name is too long' };
  const wildcard = name.startsWith('*.');
  const base = wildcard ? name.slice(2) : name;
  if (base === '') return UNQUALIFIED;
  const star = refuseStar(base);
  if (star) return star;
  // Checked before the conversion, which would interpret `%41` or a slash.
  if (/[\0-\x7f]/.test(base.replace(/[A-Za-z0-9._-]/g, ''))) {
    return { code: 406, text: 'the name has a character that is not allowed in hostnames' };
  }
  const ascii = toAscii(base);
  if (ascii === null) return { code: 429, text: 'the name is not valid as an internationalized name' };
  return refuseLabels(ascii.split('.')) ?? refuseWhole(ascii, wildcard);
}

function refuseStar(base: string): Refusal | null {
  if (!base.includes('*')) return null;
  return base.split('.').includes('*')
    ? { code: 402, text: '* is allowed as the whole first label only' }
    : { code: 403, text: '* cannot be part of a label' };
}

/** @returns null when the name is not valid as an internationalized name */
function toAscii(base: string): string | null {
  if (!/[^\0-\x7f]|(^|\.)xn--/i.test(base)) return base.toLowerCase();
  const ascii = domainToASCII(base);
  return ascii === '' || hasInvalidPunycode(ascii) ? null : ascii;
}

function refuseLabels(labels: readonly string[]): Refusal | null {
  for (const label of labels) {
    const refusal = refuseLabel(label);
    if (refusal) return refusal;
  }
  return null;
}

function refuseLabel(label: string): Refusal | null {
  if (label === '') return { code: 409, text: 'the name has an empty label' };
  if (label.length > 63) return { code: 513, text: 'a label is longer than 63 characters' };
  if (label.includes('_')) return { code: 438, text: 'an underscore is not allowed in hostnames' };
  if (!/^[a-z0-9-]+$/.test(label))
    return { code: 406, text: 'a label has a character that is not allowed in hostnames' };
  if (label.startsWith('-')) return { code: 407, text: 'a label starts with a hyphen' };
  if (label.endsWith('-')) return { code: 408, text: 'a label ends with a hyphen' };
  if (/^(?!xn).{2}--/.test(label)) return { code: 410, text: 'a label has hyphens in its third and fourth place' };
  return null;
}

function refuseWhole(name: string, wildcard: boolean): string | Refusal {
  if (!wildcard && !name.includes('.')) return UNQUALIFIED;
  if (/(^|\.)\d+$/.test(name)) return { code: 411, text: 'the name ends in a number: an address is not a hostname' };
  const full = wildcard ? `*.${name}` : name;
  return full.length > 253 ? { code: 514, text: 'the name is longer than 253 characters' } : full;
}

/**
 * Whether a wildcard such as `*.example.com` covers a name at any depth, but not `example.com` itself.
 * A wildcard covers itself and the wildcards below it. Both names are in canonical form.
 */
export function wildcardCovers(wildcard: string, name: string): boolean {
  return wildcard.startsWith('*.') && (name === wildcard || name.endsWith(wildcard.slice(1)));
}

/** What every accepted hostport matches. */
export const HOSTPORT_PATTERN = new RegExp(HOSTNAME_PATTERN.source.replace('$', ':\\d+$'));

/** Brings a `host:port` into canonical form; the host may be a wildcard. */
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
