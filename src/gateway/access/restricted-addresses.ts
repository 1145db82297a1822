import { type Cidr, parseCidr } from '../../lib/network/cidr.ts';
import { parseAddress, withoutMapping } from '../../lib/network/ip-address.ts';
import type { IpRestrictionType } from '../../management/resources/ip-restriction.ts';
import type { IpRule, PolicyPorts } from '../../traffic-policy/ports.ts';
import type { Store } from '../store/store.ts';

/** The other side of a connection; sockets are. */
export interface Remote {
  readonly remoteAddress?: string | undefined;
}

interface Ranges {
  rules: readonly IpRule[] | null;
  allowed: readonly Cidr[];
  denied: readonly Cidr[];
}

/** The types from which the gateway's own machine is exempt: otherwise, a mistake could not be undone. */
const EXEMPT: ReadonlySet<IpRestrictionType> = new Set(['api', 'dashboard']);
const OWN_ADDRESSES: ReadonlySet<string> = new Set(['127.0.0.1', '::1']);

/** Applies IP restrictions. Rows are read again after a change of the database; without any, a question costs nothing. */
export class RestrictedAddresses {
  #at = -1;
  #policiesOf = new Map<string, readonly string[]>();
  readonly #ranges = new WeakMap<readonly string[], Ranges>();

  /** @param ipPolicies the rules of IP policies; the same object means an unchanged list */
  constructor(
    private readonly store: Pick<Store, 'database' | 'ipRestrictions'>,
    private readonly ipPolicies: PolicyPorts['ipPolicies'],
  ) {}

  refuses(type: IpRestrictionType, remote: Remote): boolean {
    const ids = this.#policies.get(type);
    if (ids === undefined) return false;
    const address = withoutMapping(remote.remoteAddress ?? '');
    return !(EXEMPT.has(type) && OWN_ADDRESSES.has(address)) && !this.#allows(ids, address);
  }

  get #policies(): ReadonlyMap<string, readonly string[]> {
    const { database, ipRestrictions } = this.store;
    if (this.#at === database.commits) return this.#policiesOf;
    const rows = ipRestrictions.where('enforced = 1', []);
    // The same list as before, if nothing has changed: what was read of it stays known.
    const known = new Map([...this.#policiesOf.values()].map((ids) => [ids.join(), ids]));
    this.#policiesOf = new Map(rows.map((row) => [row.type, known.get(row.ip_policy_ids.join()) ?? row.ip_policy_ids]));
    this.#at = database.commits;
    return this.#policiesOf;
  }

  #allows(ids: readonly string[], text: string): boolean {
    const address = parseAddress(text);
    if (address === null) return false;
    const { allowed, denied } = this.#rangesOf(ids);
    const isIn = (ranges: readonly Cidr[]) => ranges.some((range) => range.contains(address));
    return isIn(allowed) && !isIn(denied);
  }

  #rangesOf(ids: readonly string[]): Ranges {
    const rules = this.ipPolicies(ids);
    const known = this.#ranges.get(ids);
    if (known?.rules === rules) return known;
    const of = (action: IpRule['action']) =>
      (rules ?? []).flatMap((rule) => (rule.action === action ? (parseCidr(rule.cidr) ?? []) : []));
    const ranges = { rules, allowed: of('allow'), denied: of('deny') };
    this.#ranges.set(ids, ranges);
    return ranges;
  }
}
