import { isAddressOfUrl, parseAddress, withoutBrackets } from '../../lib/network/ip-address.ts';
import type { PortRange } from '../../lib/network/port-range.ts';
import { parseHostname, parseHostport, wildcardCovers } from './hostname.ts';

/** An address that an agent wants to bind, with names in canonical form. */
export type Binding =
  | { kind: 'hostname'; hostname: string }
  | { kind: 'address'; address: string }
  /** Any free TCP address. */
  | { kind: 'any-address' }
  | { kind: 'labels'; labels: Readonly<Record<string, string>> };

type Rule =
  | { kind: 'everything' }
  | { kind: 'hostname'; hostname: string }
  /** Every first label that ends in `ending`, directly below `parent`. */
  | { kind: 'ending'; ending: string; parent: string }
  | { kind: 'address'; address: string }
  | { kind: 'addresses'; host: string; ports: PortRange }
  | { kind: 'label'; key: string; value: string };

/** Longer than two names; nothing splits more. */
const MAX_RULE = 1024;

/**
 * Parses a rule of an authtoken's access control list (ACL): `*`, `bind:*`, `bind:<hostname>`, `bind:*.<hostname>`,
 * `bind:<host>:<port>` or `bind:<key>=<value>`, where `*` can replace the whole key or value. Rules of our own are
 * `bind:*-<name>.<hostname>` for all first labels that end in `-<name>`, and `bind:<host>:<port>-<port>`.
 */
export function parseAclRule(text: string): Rule | null {
  if (text.length > MAX_RULE) return null;
  if (text === '*' || text === 'bind:*') return { kind: 'everything' };
  if (!text.startsWith('bind:') || /\s/.test(text)) return null;
  const what = text.slice('bind:'.length);
  if (what.includes('=')) return parseLabel(what);
  if (what.includes(':')) {
    const range = /^(\[[^\]]+\]|[^:]+):(\d+)-(\d+)$/.exec(what) ?? /^(\[[^\]]+\]|[\d.]+):(\d+)$/.exec(what);
    if (range) return parseAddresses(range);
    const address = parseHostport(what);
    return typeof address === 'string' && !address.startsWith('*') ? { kind: 'address', address } : null;
  }
  const ending = /^\*(-[a-z0-9-]*[a-z0-9])\.(.+)$/i.exec(what);
  if (ending) return parseEnding(ending);
  const hostname = parseHostname(what);
  return typeof hostname === 'string' ? { kind: 'hostname', hostname } : null;
}

function parseEnding([, ending = '', rest = '']: RegExpExecArray): Rule | null {
  // With a letter in place of the star it must be a hostname.
  const hostname = parseHostname(`a${ending}.${rest}`);
  if (typeof hostname !== 'string') return null;
  const dot = hostname.indexOf('.');
  return { kind: 'ending', ending: hostname.slice(1, dot), parent: hostname.slice(dot + 1) };
}

function parseAddresses([, name = '', first, last = first]: RegExpExecArray): Rule | null {
  // Trial gateways, and those without a domain, have their tcp endpoints at what is no fully qualified name.
  const isOwn = name === 'localhost' || (isAddressOfUrl(name) && parseAddress(withoutBrackets(name)) !== null);
  const host = isOwn ? name.toLowerCase() : parseHostname(name);
  if (typeof host !== 'string' || host.startsWith('*')) return null;
  const ports = { first: Number(first), last: Number(last) };
  const isRange = ports.first >= 1 && ports.first <= ports.last && ports.last <= 65_535;
  return isRange ? { kind: 'addresses', host, ports } : null;
}

/** The ports of a host that an ACL's rules for ranges allow; invalid ones allow nothing. */
export function permittedPorts(acl: readonly string[], host: string): PortRange[] {
  return acl.flatMap((text) => {
    const rule = parseAclRule(text);
    return rule?.kind === 'addresses' && rule.host === host ? [rule.ports] : [];
  });
}

function parseLabel(text: string): Rule | null {
  const [key, value, ...more] = text.split('=');
  if (!key || !value || more.length > 0) return null;
  const isPlain = (part: string) => part === '*' || !part.includes('*');
  return isPlain(key) && isPlain(value) ? { kind: 'label', key, value } : null;
}

/**
 * Whether an ACL allows a binding. An empty ACL allows everything, otherwise one matching rule suffices; labels must all be
 * allowed. Invalid rules allow nothing.
 */
export function isPermitted(acl: readonly string[], binding: Binding): boolean {
  if (acl.length === 0) return true;
  const rules = acl.map(parseAclRule).filter((rule) => rule !== null);
  if (binding.kind !== 'labels') return rules.some((rule) => permits(rule, binding));
  const labels = Object.entries(binding.labels);
  return labels.length > 0 && labels.every(([key, value]) => rules.some((rule) => permitsLabel(rule, key, value)));
}

function permits(rule: Rule, binding: Exclude<Binding, { kind: 'labels' }>): boolean {
  if (rule.kind === 'everything') return true;
  if (rule.kind === 'hostname' && binding.kind === 'hostname') {
    return rule.hostname === binding.hostname || wildcardCovers(rule.hostname, binding.hostname);
  }
  if (rule.kind === 'ending' && binding.kind === 'hostname') return endsAs(rule, binding.hostname);
  if (binding.kind !== 'address') return false;
  return (rule.kind === 'address' && rule.address === binding.address) || isAmong(rule, binding.address);
}

function endsAs({ ending, parent }: Rule & { kind: 'ending' }, hostname: string): boolean {
  const dot = hostname.indexOf('.');
  const label = hostname.slice(0, dot);
  return hostname.slice(dot + 1) === parent && label.length > ending.length && label.endsWith(ending);
}

function isAmong(rule: Rule, address: string): boolean {
  if (rule.kind !== 'addresses') return false;
  const colon = address.lastIndexOf(':');
  const port = Number(address.slice(colon + 1));
  return address.slice(0, colon) === rule.host && port >= rule.ports.first && port <= rule.ports.last;
}

function permitsLabel(rule: Rule, key: string, value: string): boolean {
  if (rule.kind === 'everything') return true;
  return (
    rule.kind === 'label' && (rule.key === '*' || rule.key === key) && (rule.value === '*' || rule.value === value)
  );
}
