import { parseToken } from '../../lib/ids.ts';
import type { PortRange } from '../../lib/network/port-range.ts';
import { type Binding, isPermitted, permittedPorts } from '../../management/resources/acl-rule.ts';
import type { Refusal } from '../../management/resources/refusal.ts';
import { type DomainSettings, isGatewayName, isInternalName, isUnderBaseDomain } from '../endpoints/domain-names.ts';
import type { CredentialRow } from '../store/accounts.ts';
import type { Store } from '../store/store.ts';
import { secretMatches } from '../store/tokens.ts';

/** The credential of an authtoken that may start sessions. */
export interface AgentCredential {
  /** `cr_…` */
  id: string;
  /** `bot_…`; null without an owner. */
  ownerId: string | null;
}

export function isRefusal(answer: object): answer is Refusal {
  return 'code' in answer;
}

/** The port that clients use for TLS; TLS edges and agents compete for it. */
const TLS_PORT = 443;

/** Checks authtokens and their ACL rules. Refusals carry the error codes that SDKs know. */
export class AuthtokenAcl {
  /** The last credential checked, as of that commit: an agent may bind hundreds of endpoints in a row. */
  #latest: { id: string; at: number; rules: string[] | Refusal } | null = null;

  /** @param tlsPort the port that all names share; hostports of edges may call it 443 */
  constructor(
    private readonly store: Store,
    private readonly domains: DomainSettings,
    private readonly tlsPort = TLS_PORT,
  ) {}

  /**
   * Finds the credential of an authtoken.
   *
   * @param authtoken as the agent sent it; empty without one
   * @returns the credential, or a refusal, which never repeats the authtoken
   */
  authenticate(authtoken: string): AgentCredential | Refusal {
    if (authtoken === '') return { code: 4018, text: 'an authtoken is required' };
    const parts = parseToken(authtoken);
    if (!parts) return { code: 105, text: 'malformed authtoken' };
    const row = this.store.credentials.get(`cr_${parts.ksuid}`);
    if (!row || !secretMatches(parts.secret, row.secret_hash)) {
      return { code: 107, text: 'unknown authtoken' };
    }
    if (!this.#ownerIsActive(row)) return { code: 300, text: 'the owner of the authtoken is not active' };
    return { id: row.id, ownerId: row.owner_id };
  }

  /**
   * Whether an authtoken allows a binding now. After a change of ACL rules, this decides which endpoints go offline.
   *
   * @param credentialId `cr_…` of the session
   * @param binding names in lower case
   * @returns the refusal, or null when it is allowed
   */
  authorize(credentialId: string, binding: Binding): Refusal | null {
    const rules = this.#rulesOf(credentialId);
    if (isRefusal(rules)) return rules;
    if (!isPermitted(rules, binding) && !this.#isGranted(credentialId, binding)) return denied(binding);
    if (binding.kind !== 'hostname' || isInternalName(binding.hostname, this.domains)) return null;
    return this.refuseName(binding.hostname);
  }

  /** Whether the rules of an authtoken allow a binding, without the names that the gateway has granted. */
  isPermitted(credentialId: string, binding: Binding): boolean {
    const rules = this.#rulesOf(credentialId);
    return !isRefusal(rules) && isPermitted(rules, binding);
  }

  /** Whether an authtoken has ACL rules now. */
  hasRules(credentialId: string): boolean {
    const rules = this.#rulesOf(credentialId);
    return !isRefusal(rules) && rules.length > 0;
  }

  /** The ranges of a host's ports that an authtoken may bind by its rules. */
  portsOf(credentialId: string, host: string): PortRange[] {
    const rules = this.#rulesOf(credentialId);
    return isRefusal(rules) ? [] : permittedPorts(rules, host);
  }

  /** An authtoken's ACL rules, or why it is refused; read again after every change of the database. */
  #rulesOf(id: string): string[] | Refusal {
    const at = this.store.database.commits;
    if (this.#latest?.id !== id || this.#latest.at !== at) this.#latest = { id, at, rules: this.#readRules(id) };
    return this.#latest.rules;
  }

  #readRules(id: string): string[] | Refusal {
    const row = this.store.credentials.get(id);
    if (!row) return { code: 300, text: 'the authtoken was deleted' };
    if (!this.#ownerIsActive(row)) return { code: 300, text: 'the owner of the authtoken is not active' };
    return row.acl;
  }

  #isGranted(credentialId: string, binding: Binding): boolean {
    return binding.kind === 'hostname' && this.store.siteNames.isHeldBy(binding.hostname, credentialId);
  }

  /**
   * Why no authtoken can bind a public name; null when one can.
   *
   * @param host lower case
   */
  refuseName(host: string): Refusal | null {
    const isServed = [this.tlsPort, TLS_PORT].some((port) => this.store.tlsEdges.holderOf(`${host}:${port}`) !== null);
    if (isServed) return { code: 334, text: 'a TLS edge serves this name' };
    const isWildcard = host.startsWith('*.');
    if (!isWildcard && isGatewayName(host, this.domains)) {
      return { code: 319, text: 'the gateway uses this name itself' };
    }
    if (!isWildcard && isUnderBaseDomain(host, this.domains)) return null;
    const covering = this.store.reservedDomains.covering(host);
    if (isWildcard) return refuseWildcard(host, covering?.domain ?? null);
    if (covering) return null;
    return { code: 319, text: `${host} is not reserved; names below ${this.domains.baseDomain} need no reservation` };
  }

  #ownerIsActive({ owner_id }: CredentialRow): boolean {
    return owner_id === null || this.store.botUsers.get(owner_id)?.active === true;
  }
}

/** The refusal names the hostname: the gateway may have chosen it. */
function denied(binding: Binding): Refusal {
  if (binding.kind !== 'hostname') return DENIED[binding.kind];
  return { code: 316, text: `the authtoken's rules do not allow the name ${binding.hostname}` };
}

const DENIED: Readonly<Record<Exclude<Binding['kind'], 'hostname'>, Refusal>> = {
  address: { code: 308, text: "the authtoken's rules do not allow this address" },
  'any-address': { code: 356, text: "the authtoken's rules only allow specific names or addresses" },
  labels: { code: 399, text: "the authtoken's rules do not allow these labels" },
};

function refuseWildcard(host: string, covering: string | null): Refusal | null {
  if (covering === host) return null;
  return covering
    ? { code: 321, text: 'the wildcard is not reserved; a wider reserved wildcard does not include it' }
    : { code: 318, text: 'the wildcard is not reserved' };
}
