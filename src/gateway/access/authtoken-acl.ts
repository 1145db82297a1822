import { parseToken } from '../../lib/ids.ts';
import { type Binding, isPermitted } from '../../management/resources/acl-rule.ts';
import type { Refusal } from '../../management/resources/refusal.ts';
import { type DomainSettings, isGatewayName, isInternalName, isUnderBaseDomain } from '../endpoints/domain-names.ts';
import type { CredentialRow } from '../store/credentials.ts';
import type { Store } from '../store/store.ts';
import { secretMatches } from '../store/tokens.ts';

/** An authtoken that may start sessions. */
export interface AgentCredential {
  /** `cr_…` */
  id: string;
  /** `bot_…`, or null when nobody owns it. */
  ownerId: string | null;
}

/** Whether an answer of {@link AuthtokenAcl} is a refusal. */
export function isRefusal(answer: object): answer is Refusal {
  return 'code' in answer;
}

/** The port a name's TLS traffic arrives at, perhaps redirected; TLS edges and agents compete for it. */
const TLS_PORT = 443;

/** Decides what agents may do, by what the management API was told. RefusalLog carry the codes that SDKs know. */
export class AuthtokenAcl {
  /** The credential asked about last, as of that many commits: an agent binds endpoints by the hundred. */
  #latest: { id: string; at: number; rules: string[] | Refusal } | null = null;

  /** @param tlsPort that all names share; edges can name it by 443, too */
  constructor(
    private readonly store: Store,
    private readonly domains: DomainSettings,
    private readonly tlsPort = TLS_PORT,
  ) {}

  /**
   * Finds the credential of an authtoken.
   *
   * @param authtoken as the agent sent it; empty when it sent none
   * @returns the credential, or why there is none; never repeats the authtoken
   */
  authenticate(authtoken: string): AgentCredential | Refusal {
    if (authtoken === '') return { code: 4018, text: 'an authtoken is required' };
    const parts = parseToken(authtoken);
    if (!parts) return { code: 105, text: 'the authtoken is malformed' };
    const row = this.store.credentials.get(`cr_${parts.ksuid}`);
    if (!row || !secretMatches(parts.secret, row.secret_hash)) {
      return { code: 107, text: 'the authtoken is not known to this gateway' };
    }
    if (!this.#ownerIsActive(row)) return { code: 300, text: 'the owner of the authtoken is not active' };
    return { id: row.id, ownerId: row.owner_id };
  }

  /**
   * Whether an authtoken allows a binding now. Asked again after a change of rights, it tells what has to go offline.
   *
   * @param credentialId `cr_…` of the session
   * @param binding names in lower case
   * @returns why not, or null
   */
  authorize(credentialId: string, binding: Binding): Refusal | null {
    const rules = this.#rulesOf(credentialId);
    if (isRefusal(rules)) return rules;
    if (!isPermitted(rules, binding)) return denied(binding);
    if (binding.kind !== 'hostname' || isInternalName(binding.hostname, this.domains)) return null;
    return this.#refuseName(binding.hostname);
  }

  /** An authtoken's access rules, or why it may do nothing; read again after every change of the database. */
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

  #refuseName(host: string): Refusal | null {
    const isServed = [this.tlsPort, TLS_PORT].some((port) => this.store.tlsEdges.holderOf(`${host}:${port}`) !== null);
    if (isServed) return { code: 334, text: 'a TLS edge serves this name' };
    const isWildcard = host.startsWith('*.');
    if (!isWildcard && isGatewayName(host, this.domains)) {
      return { code: 319, text: 'the gateway answers for this name itself' };
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

/** A name may have been chosen here: it is told with the refusal. */
function denied(binding: Binding): Refusal {
  if (binding.kind !== 'hostname') return DENIED[binding.kind];
  return { code: 316, text: `the authtoken's rules do not allow the name ${binding.hostname}` };
}

const DENIED: Readonly<Record<Exclude<Binding['kind'], 'hostname'>, Refusal>> = {
  address: { code: 308, text: "the authtoken's rules do not allow this address" },
  'any-address': { code: 356, text: "the authtoken's rules allow certain names or addresses only" },
  labels: { code: 399, text: "the authtoken's rules do not allow these labels" },
};

function refuseWildcard(host: string, covering: string | null): Refusal | null {
  if (covering === host) return null;
  return covering
    ? { code: 321, text: 'a wildcard must itself be reserved; one that covers it does not suffice' }
    : { code: 318, text: 'the wildcard is not reserved' };
}
