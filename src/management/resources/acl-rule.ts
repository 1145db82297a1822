import { parseHostname, wildcardCovers } from './hostname.ts';
import { parseHostport } from './hostport.ts';

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
  | { kind: 'address'; address: string }
  | { kind: 'label'; key: string; value: string };

/**
 * Parses a rule of an authtoken's access control list (ACL): `*`, `bind:*`, `bind:<hostname>`, `bind:*.<hostname>`,
 * `bind:<host>:<port>` or `bind:<key>=<value>`, where `*` can replace the whole key or value.
 *
 * @returns null for any other text
 */
export function parseAclRule(text: string): Rule | null {
  if (text === '*' || text === 'bind:*') return { kind: 'everything' };
  if (!text.startsWith('bind:') || /\s/.test(text)) return null;
  const what = text.slice('bind:'.length);
  if (what.includes('=')) return parseLabel(what);
  if (what.includes(':')) {
    const address = parseHostport(what);
    return typeof address === 'string' && !address.startsWith('*') ? { kind: 'address', address } : null;
  }
  const hostname = parseHostname(what);
  return typeof hostname === 'string' ? { kind: 'hostname', hostname } : null;
}

function parseLabel(text: string): Rule | null {
  const [key, value, ...more] = text.split('=');
  if (!key || !value || more.length > 0) return null;
  const isPlain = (part: string) => part === '*' || !part.includes('*');
  return isPlain(key) && isPlain(value) ? { kind: 'label', key, value } : null;
}

/**
 * Whether an ACL allows a binding. An empty ACL allows everything, otherwise one matching rule suffices; labels must all
 * be allowed.
 *
 * @param acl stored rules; invalid ones allow nothing
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
  return rule.kind === 'address' && binding.kind === 'address' && rule.address === binding.address;
}

function permitsLabel(rule: Rule, key: string, value: string): boolean {
  if (rule.kind === 'everything') return true;
  return (
    rule.kind === 'label' && (rule.key === '*' || rule.key === key) && (rule.value === '*' || rule.value === value)
  );
}
