import { domainToASCII } from 'node:url';
import { type HostnameFlaw, hostnameFlaws, MAX_HOSTNAME } from '../../lib/network/hostname-grammar.ts';
import type { Refusal } from './refusal.ts';

const UNQUALIFIED: Refusal = { code: 448, text: 'the name is not fully qualified: use a name such as app.example.com' };

const TOO_LONG: Refusal = { code: 514, text: 'the name is longer than 253 characters' };
const EMPTY_LABEL: Refusal = { code: 409, text: 'the name has an empty label' };
/** As in ngrok's API; double hyphens are accepted. */
const REFUSALS: Readonly<Partial<Record<HostnameFlaw, Refusal>>> = {
  'starts with a dot': EMPTY_LABEL,
  'ends with a dot': EMPTY_LABEL,
  'empty label': EMPTY_LABEL,
  'label too long': { code: 513, text: 'a label is longer than 63 characters' },
  underscore: { code: 438, text: 'an underscore is not allowed in hostnames' },
  character: { code: 406, text: 'a label has a character that is not allowed in hostnames' },
  'label starts with a hyphen': { code: 407, text: 'a label starts with a hyphen' },
  'label ends with a hyphen': { code: 408, text: 'a label ends with a hyphen' },
  'hyphens in third and fourth place': { code: 410, text: 'a label has hyphens in its third and fourth place' },
  'ends in a number': { code: 411, text: 'the name ends in a number: an address is not a hostname' },
  'too long': TOO_LONG,
};
/** Told after those of labels, and after that a name is not fully qualified. */
const OF_WHOLE: ReadonlySet<HostnameFlaw> = new Set(['ends in a number', 'too long']);

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
  const flaws = hostnameFlaws(ascii);
  const refusal = refusalOf(flaws.filter((flaw) => !OF_WHOLE.has(flaw)));
  if (refusal) return refusal;
  if (!wildcard && !ascii.includes('.')) return UNQUALIFIED;
  const full = wildcard ? `*.${ascii}` : ascii;
  return refusalOf(flaws) ?? (full.length > MAX_HOSTNAME ? TOO_LONG : full);
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
  return ascii === '' || hostnameFlaws(ascii).includes('punycode') ? null : ascii;
}

function refusalOf(flaws: readonly HostnameFlaw[]): Refusal | undefined {
  return flaws.map((flaw) => REFUSALS[flaw]).find((refusal) => refusal !== undefined);
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
