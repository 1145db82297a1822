import { RpcError } from '../../agent-protocol/rpc.ts';
import type { PortRange } from '../../lib/network/port-range.ts';
import { type Binding, isPermitted, permittedPorts } from '../../management/resources/acl-rule.ts';
import type { Refusal } from '../../management/resources/refusal.ts';
import type { SiteNameGrants } from '../devices/site-name-grants.ts';
import { type DomainSettings, isGatewayName, isInternalName, isUnderBaseDomain } from '../endpoints/domain-names.ts';
import type { OwnerCredential } from '../endpoints/endpoint-owner.ts';
import type { Store } from '../store/store.ts';

export const INACTIVE_OWNER: Refusal = { code: 300, text: 'the owner of the authtoken is not active' };

/** The port that clients use for TLS; TLS edges and agents compete for it. */
const TLS_PORT = 443;

/** Checks the ACL rules of authtokens. Refusals carry the error codes that SDKs know. */
export class AuthtokenAcl {
  /** An authtoken's ACL rules, or why it is refused: an agent may bind hundreds of endpoints in a row. */
  readonly #rulesOf: (credentialId: string) => string[] | Refusal;

  /** @param tlsPort the port that all names share; hostports of edges may call it 443 */
  constructor(
    private readonly store: Store,
    private readonly domains: DomainSettings,
    private readonly tlsPort = TLS_PORT,
  ) {
    this.#rulesOf = store.database.untilCommit((id) => this.#readRules(id));
  }

  /** Whether an authtoken allows a binding now, names in lower case. After a change of rules, it says what goes offline. */
  authorize(credentialId: string, binding: Binding): Refusal | null {
    const rules = this.#rulesOf(credentialId);
    if (!Array.isArray(rules)) return rules;
    if (!isPermitted(rules, binding) && !this.#isGranted(credentialId, binding)) return denied(binding);
    if (binding.kind === 'address') return this.#refuseAddress(credentialId, binding.address);
    if (binding.kind !== 'hostname' || isInternalName(binding.hostname, this.domains)) return null;
    return this.refuseName(binding.hostname);
  }

  /** Whether the rules of an authtoken allow a binding, without the names that the gateway has granted. */
  isPermitted(credentialId: string, binding: Binding): boolean {
    const rules = this.#rulesOf(credentialId);
    return Array.isArray(rules) && isPermitted(rules, binding);
  }

  hasRules(credentialId: string): boolean {
    const rules = this.#rulesOf(credentialId);
    return Array.isArray(rules) && rules.length > 0;
  }

  portsOf(credentialId: string, host: string): PortRange[] {
    const rules = this.#rulesOf(credentialId);
    return Array.isArray(rules) ? permittedPorts(rules, host) : [];
  }

  #readRules(id: string): string[] | Refusal {
    const row = this.store.credentials.get(id);
    if (!row) return { code: 300, text: 'the authtoken was deleted' };
    if (!this.store.botUsers.isActive(row.owner_id)) return INACTIVE_OWNER;
    return row.acl;
  }

  #isGranted(credentialId: string, binding: Binding): boolean {
    return binding.kind === 'hostname' && this.store.siteNames.isHeldBy(binding.hostname, credentialId);
  }

  /** Why an authtoken cannot bind a reserved address: it is another owner's. */
  #refuseAddress(credentialId: string, address: string): Refusal | null {
    if (isInternalName(address.slice(0, address.lastIndexOf(':')), this.domains)) return null;
    // All public tcp endpoints have the same host, or the gateway's address.
    const port = Number(address.slice(address.lastIndexOf(':') + 1));
    const owner = this.store.tcpPorts.ownerOf(port);
    if (owner === null || this.store.credentials.get(credentialId)?.owner_id === owner) return null;
    return { code: 308, text: `the address ${address} is reserved for another owner` };
  }

  /** Why no authtoken can bind a public name, lower case; null when one can. */
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
}

/** An authtoken whose ACL is asked whenever its session binds something. */
export class AuthtokenCredential implements OwnerCredential {
  constructor(
    readonly id: string,
    readonly ownerId: string | null,
    private readonly acl: AuthtokenAcl,
    private readonly names: Pick<SiteNameGrants, 'judge' | 'keep'>,
  ) {}

  authorize(binding: Binding): void {
    throwIfRefused(this.acl.authorize(this.id, binding));
  }

  authorizeWanted(binding: Binding): void {
    const { id, acl, names } = this;
    const verdict =
      binding.kind === 'hostname' ? names.judge(id, binding.hostname, acl.isPermitted(id, binding)) : null;
    if (verdict === null) this.authorize(binding);
    else if (verdict !== 'grantable') throw rpcError(verdict);
  }

  async keep(binding: Binding): Promise<void> {
    if (binding.kind !== 'hostname') return;
    const { id, acl, names } = this;
    throwIfRefused(await names.keep(id, binding.hostname, acl.isPermitted(id, binding)));
  }

  hasRules(): boolean {
    return this.acl.hasRules(this.id);
  }

  portsOf(host: string): PortRange[] {
    return this.acl.portsOf(this.id, host);
  }
}

function throwIfRefused(refusal: Refusal | null): void {
  if (refusal) throw rpcError(refusal);
}

export function rpcError({ code, text }: Refusal): RpcError {
  return new RpcError(`ERR_NGROK_${code}`, text);
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
