import { domainToASCII, domainToUnicode } from 'node:url';

/** What keeps a name from being a hostname. Callers have words for those that they refuse, and accept the rest. */
export type HostnameFlaw =
  | 'too long'
  | 'starts with a dot'
  | 'ends with a dot'
  | 'empty label'
  | 'label too long'
  | 'underscore'
  | 'character'
  | 'label starts with a hyphen'
  | 'label ends with a hyphen'
  /** Reserved, for internationalized names (RFC 5891, section 4.2.3.1). */
  | 'hyphens in third and fourth place'
  | 'double hyphen'
  | 'punycode'
  /** No top-level domain is a number, and many parsers read such a name as an IP address. */
  | 'ends in a number';

/** Some services and resolvers accept them. */
const UNUSUAL: ReadonlySet<HostnameFlaw> = new Set(['hyphens in third and fourth place', 'double hyphen', 'punycode']);

/** Characters of a name, and of a label (RFC 1035, section 2.3.4). */
export const MAX_HOSTNAME = 253;
const MAX_LABEL = 63;

const LABEL_FLAWS: readonly (readonly [HostnameFlaw, (label: string) => boolean])[] = [
  ['label too long', (label) => label.length > MAX_LABEL],
  ['underscore', (label) => label.includes('_')],
  ['character', (label) => /[^a-z0-9_-]/.test(label)],
  ['label starts with a hyphen', (label) => label.startsWith('-')],
  ['label ends with a hyphen', (label) => label.endsWith('-')],
  ['hyphens in third and fourth place', (label) => /^(?!xn).{2}--/.test(label)],
  ['double hyphen', (label) => /^(?!xn--).*--/.test(label)],
  ['punycode', isInvalidPunycode],
];

/** All flaws of a name in lower-case ASCII, without a wildcard's `*.`: label by label, then those of the whole. */
export function hostnameFlaws(name: string): HostnameFlaw[] {
  const labels = name.split('.');
  const last = labels.length - 1;
  const flaws = labels.flatMap((label, at) => (label === '' ? [emptyAt(at, last)] : flawsOf(label)));
  if (/^(?:\d+|0x[0-9a-f]*)$/.test(labels[last] ?? '')) flaws.push('ends in a number');
  if (name.length > MAX_HOSTNAME) flaws.push('too long');
  return flaws;
}

function emptyAt(at: number, last: number): HostnameFlaw {
  if (at === last) return last === 0 ? 'empty label' : 'ends with a dot';
  return at === 0 ? 'starts with a dot' : 'empty label';
}

function flawsOf(label: string): HostnameFlaw[] {
  return LABEL_FLAWS.filter(([, isIn]) => isIn(label)).map(([flaw]) => flaw);
}

/**
 * Whether a name in lower-case ASCII can be a host's.
 *
 * @param accepted flaws that it may have all the same
 */
export function isHostname(name: string, ...accepted: readonly HostnameFlaw[]): boolean {
  return hostnameFlaws(name).every((flaw) => UNUSUAL.has(flaw) || accepted.includes(flaw));
}

/** As people write it in lower-case ASCII, without the trailing dot; empty when there is no such form. */
export function canonicalHostname(host: string): string {
  const ascii = /^[\x21-\x7e]*$/.test(host) ? host.toLowerCase() : domainToASCII(host);
  return ascii.replace(/\.$/, '');
}

/**
 * Whether an `xn--` label encodes nothing. A valid one decodes to text beyond ASCII, which encodes to that label again. Node
 * 20 to 24 also find this out in `domainToASCII`, Node 26 does not.
 */
function isInvalidPunycode(label: string): boolean {
  if (!label.startsWith('xn--')) return false;
  const text = domainToUnicode(label);
  return !/[^\0-\x7f]/.test(text) || domainToASCII(text) !== label;
}
