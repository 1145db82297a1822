import { AgentError } from '../errors/agent-error.ts';
import type { Tunnel, TunnelState, TunnelStatus } from './tunnel.ts';
import type { TunnelSupervisor } from './tunnel-supervisor.ts';
import { UrlParts } from './url-part.ts';

/** A tunnel for readers; its members always show the current state. */
export interface TunnelView {
  readonly url: string;
  readonly tunnel: Tunnel;
  readonly status: TunnelStatus;
}

/** All tunnels: finds them, counts them by state, and knows which domains are in use. */
export class TunnelList {
  readonly #supervisors = new Map<string, TunnelSupervisor>();
  readonly #counts: Record<TunnelState, number> = { online: 0, connecting: 0, offline: 0, failed: 0 };
  /** Domains of tunnels, including those that are being created. */
  readonly #domains = new Set<string>();
  #index: UrlParts<TunnelSupervisor> | null = null;

  /** @param reservedDomains domains that no tunnel may use */
  constructor(private readonly reservedDomains: readonly string[]) {}

  values(): Iterable<TunnelSupervisor> {
    return this.#supervisors.values();
  }

  get size(): number {
    return this.#supervisors.size;
  }

  get(id: string): TunnelSupervisor | undefined {
    return this.#supervisors.get(id);
  }

  get counts(): Readonly<Record<TunnelState, number>> {
    return this.#counts;
  }

  /** @throws {AgentError} 404, or 409 when several tunnels match */
  find(urlPart: string): TunnelSupervisor {
    return this.#urlParts().find(urlPart);
  }

  /** The shortest part of a tunnel's URL that identifies it now. */
  urlPartOf({ tunnel, url }: TunnelView): string {
    const supervisor = this.#supervisors.get(tunnel.id);
    // No part finds a tunnel that was removed meanwhile.
    return supervisor ? this.#urlParts().shortestFor(supervisor) : url;
  }

  /** Claims a domain for a new tunnel; throws an {@link AgentError} 409 when it is in use. */
  claimDomain(domain: string): void {
    this.refuseReserved(domain);
    if (this.#domains.has(domain)) {
      throw new AgentError(
        'ERR_AGENT_DOMAIN_IN_USE',
        `domain in use: another tunnel of this agent uses ${domain}; delete it or choose another domain`,
      );
    }
    this.#domains.add(domain);
  }

  /** @throws {AgentError} 409 when no tunnel may use the domain; it may have been reserved after a tunnel was created */
  refuseReserved(domain: string): void {
    if (!this.reservedDomains.includes(domain)) return;
    throw new AgentError(
      'ERR_AGENT_DOMAIN_IN_USE',
      `domain in use: ${domain} is the agent's own domain; choose another domain`,
    );
  }

  /** Releases the domain of a tunnel that was not created. */
  releaseDomain(domain: string): void {
    this.#domains.delete(domain);
  }

  add(supervisor: TunnelSupervisor): void {
    const { id, domain } = supervisor.tunnel;
    this.#supervisors.set(id, supervisor);
    this.#domains.add(domain);
    this.#counts[supervisor.status.state]++;
    this.#index = null;
  }

  delete(supervisor: TunnelSupervisor): void {
    const { id, domain } = supervisor.tunnel;
    this.#supervisors.delete(id);
    this.#domains.delete(domain);
    this.#counts[supervisor.status.state]--;
    this.#index = null;
  }

  /** Call this after the state, URL or domain of a listed tunnel has changed. */
  changed(supervisor: TunnelSupervisor, before: TunnelState): void {
    this.#domains.add(supervisor.tunnel.domain);
    this.#counts[before]--;
    this.#counts[supervisor.status.state]++;
    this.#index = null;
  }

  #urlParts(): UrlParts<TunnelSupervisor> {
    this.#index ??= new UrlParts(this.#supervisors.values());
    return this.#index;
  }
}
