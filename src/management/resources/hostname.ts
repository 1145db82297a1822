import { domainToASCII } from 'node:url';
import type { Refusal } from './refusal.ts';

const UNQUALIFIED: Refusal = { code: 448, text: 'the name is not fully qualified: give one such as app.example.com' };

/**
 * Checks a hostname and brings it into its normal form: lower case, punycode, no dot at the end.
 *
 * @param text a name such as `cam.example.com`; `*` may stand for the whole first label
 * @returns the normal form, or why it is none, with the service's error code
 */
export function parseHostname(text: string): string | Refusal {
  const name = text.endsWith('.') ? text.slice(0, -1) : text;
  if (name.length > 1024) return { code: 423, text: 'the name is too long' };
  const wildcard = name.startsWith('*.');
  const base = wildcard ? name.slice(2) : name;
  if (base === '') return UNQUALIFIED;
  const star = refuseStar(base);
  if (star) return star;
  // Before conversion, which would read `%41` or a slash in a way of its own.
  if (/[\0-\x7f]/.test(base.replace(/[A-Za-z0-9._-]/g, ''))) {
    return { code: 406, text: 'the name holds a character that hostnames may not have' };
  }
  const ascii = toAscii(base);
  if (ascii === null) return { code: 429, text: 'the name is not valid as an internationalized name' };
  return refuseLabels(ascii.split('.')) ?? refuseWhole(ascii, wildcard);
}

function refuseStar(base: string): Refusal | null {
  if (!base.includes('*')) return null;
  return base.split('.').includes('*')
    ? { code: 402, text: '* may stand only for the whole first label' }
    : { code: 403, text: 'a label is either * or plain text' };
}

/** @returns null when punycode cannot express the name */
function toAscii(base: string): string | null {
  if (!/[^\0-\x7f]|(^|\.)xn--/i.test(base)) return base.toLowerCase();
  return domainToASCII(base) || null;
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
  if (label.includes('_')) return { code: 438, text: 'hostnames have no underscore' };
  if (!/^[a-z0-9-]+$/.test(label)) return { code: 406, text: 'a label holds a character that hostnames may not have' };
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
 * Whether a wildcard such as `*.example.com` covers a name, at any depth; it does not cover `example.com`.
 * A wildcard covers itself and the wildcards below it. Both names in normal form.
 */
export function wildcardCovers(wildcard: string, name: string): boolean {
  return wildcard.startsWith('*.') && (name === wildcard || name.endsWith(wildcard.slice(1)));
}
