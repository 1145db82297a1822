import { AgentError } from '../errors/agent-error.ts';
import type { Tunnel, TunnelState, TunnelStatus } from './tunnel.ts';
import type { TunnelSupervisor } from './tunnel-supervisor.ts';
import { UrlParts } from './url-part.ts';

/** A tunnel as it is; its members always tell the present state. */
export interface TunnelView {
  readonly url: string;
  readonly tunnel: Tunnel;
  readonly status: TunnelStatus;
}

/** The tunnels that there are: how they are found, how many are in each state, and which domains are taken. */
export class TunnelList {
  readonly #keepers = new Map<string, TunnelSupervisor>();
  readonly #counts: Record<TunnelState, number> = { online: 0, connecting: 0, offline: 0, failed: 0 };
  /** Domains of tunnels and of those that are being created. */
  readonly #domains = new Set<string>();
  readonly #closedDomains: readonly string[];
  #index: UrlParts<TunnelSupervisor> | null = null;

  /** @param closedDomains those that no tunnel may take */
  constructor(closedDomains: readonly string[]) {
    this.#closedDomains = closedDomains;
  }

  /** In order of creation. */
  values(): Iterable<TunnelSupervisor> {
    return this.#keepers.values();
  }

  get size(): number {
    return this.#keepers.size;
  }

  get(id: string): TunnelSupervisor | undefined {
    return this.#keepers.get(id);
  }

  get counts(): Readonly<Record<TunnelState, number>> {
    return this.#counts;
  }

  /** @throws {AgentError} 404, or 409 when several tunnels match */
  find(urlPart: string): TunnelSupervisor {
    return this.#urlParts().find(urlPart);
  }

  /** The shortest part of a tunnel's URL that means no other one now. */
  urlPartOf({ tunnel, url }: TunnelView): string {
    const keeper = this.#keepers.get(tunnel.id);
    // A tunnel that was removed meanwhile is no longer found by any part.
    return keeper ? this.#urlParts().shortestFor(keeper) : url;
  }

  /**
   * Takes a domain for a tunnel that is yet to be created.
   *
   * @throws {AgentError} 409 when it is taken
   */
  takeDomain(domain: string): void {
    this.refuseClosed(domain);
    if (this.#domains.has(domain)) {
      throw new AgentError('ERR_AGENT_DOMAIN_IN_USE', `${domain} is used by another tunnel of this agent`);
    }
    this.#domains.add(domain);
  }

  /** @throws {AgentError} 409 when no tunnel may have the domain, as may have become so after it was created */
  refuseClosed(domain: string): void {
    if (!this.#closedDomains.includes(domain)) return;
    throw new AgentError('ERR_AGENT_DOMAIN_IN_USE', `${domain} is the agent's own domain`);
  }

  /** Gives up the domain of a tunnel that was not created. */
  giveUpDomain(domain: string): void {
    this.#domains.delete(domain);
  }

  add(keeper: TunnelSupervisor): void {
    const { id, domain } = keeper.tunnel;
    this.#keepers.set(id, keeper);
    this.#domains.add(domain);
    this.#counts[keeper.status.state]++;
    this.#index = null;
  }

  delete(keeper: TunnelSupervisor): void {
    const { id, domain } = keeper.tunnel;
    this.#keepers.delete(id);
    this.#domains.delete(domain);
    this.#counts[keeper.status.state]--;
    this.#index = null;
  }

  /** To be called after the state of a tunnel that is on the list has changed, or its URL. */
  changed(keeper: TunnelSupervisor, before: TunnelState): void {
    this.#counts[before]--;
    this.#counts[keeper.status.state]++;
    this.#index = null;
  }

  #urlParts(): UrlParts<TunnelSupervisor> {
    this.#index ??= new UrlParts(this.#keepers.values());
    return this.#index;
  }
}
