import { type Cidr, parseAddress, parseCidr, withoutMapping } from '../../lib/network/ip-address.ts';
import type { IpRestrictionType } from '../../management/resources/ip-policy.ts';
import type { IpRule, PolicyPorts } from '../../traffic-policy/ports.ts';
import type { Store } from '../store/store.ts';

/** The other side of a connection; sockets are. */
interface Remote {
  readonly remoteAddress?: string | undefined;
}

interface Ranges {
  allowed: readonly Cidr[];
  denied: readonly Cidr[];
}

/** The types from which the gateway's own machine is exempt: otherwise, a mistake could not be undone. */
const EXEMPT: ReadonlySet<IpRestrictionType> = new Set(['api', 'dashboard']);
const OWN_ADDRESSES: ReadonlySet<string> = new Set(['127.0.0.1', '::1']);

/** Applies IP restrictions. Rows are read again after a change of the database; without any, a question costs nothing. */
export class RestrictedAddresses {
  /** By type of restriction; null: every address may come in. */
  readonly #rangesOf: (type: string) => Ranges | null;
  readonly refusesClient = (client: Remote): boolean => this.refuses('endpoints', client);

  constructor(
    private readonly store: Pick<Store, 'database' | 'ipRestrictions'>,
    private readonly ipPolicies: PolicyPorts['ipPolicies'],
  ) {
    this.#rangesOf = store.database.untilCommit((type) => this.#readRanges(type));
  }

  refuses(type: IpRestrictionType, remote: Remote): boolean {
    const ranges = this.#rangesOf(type);
    if (ranges === null) return false;
    const address = withoutMapping(remote.remoteAddress ?? '');
    return !(EXEMPT.has(type) && OWN_ADDRESSES.has(address)) && !isWithin(ranges, address);
  }

  #readRanges(type: string): Ranges | null {
    const [restriction] = this.store.ipRestrictions.where('enforced = 1 AND type = ?', [type]);
    if (!restriction) return null;
    const rules = this.ipPolicies(restriction.ip_policy_ids) ?? [];
    const of = (action: IpRule['action']) =>
      rules.flatMap((rule) => (rule.action === action ? (parseCidr(rule.cidr) ?? []) : []));
    return { allowed: of('allow'), denied: of('deny') };
  }
}

function isWithin({ allowed, denied }: Ranges, text: string): boolean {
  const address = parseAddress(text);
  if (address === null) return false;
  const isIn = (list: readonly Cidr[]) => list.some((range) => range.contains(address));
  return isIn(allowed) && !isIn(denied);
}

/** Looks up the rules of IP policies; null when one does not exist. They are cached until the next write to the database. */
export function addressRules({
  database,
  ipPolicies,
  ipPolicyRules: rows,
}: Pick<Store, 'database' | 'ipPolicies' | 'ipPolicyRules'>): (ids: readonly string[]) => readonly IpRule[] | null {
  const known = new WeakMap<readonly string[], { at: number; rules: readonly IpRule[] | null }>();
  const read = (ids: readonly string[]) => {
    if (ids.some((id) => ipPolicies.get(id) === null)) return null;
    return ids.flatMap((id) =>
      rows.where('ip_policy_id = ?', [id]).map(({ cidr, action }) => {
        return { cidr, action: action === 'allow' ? 'allow' : 'deny' } satisfies IpRule;
      }),
    );
  };
  return (ids) => {
    const { commits } = database;
    const last = known.get(ids);
    if (last?.at === commits) return last.rules;
    const rules = read(ids);
    known.set(ids, { at: commits, rules });
    return rules;
  };
}
