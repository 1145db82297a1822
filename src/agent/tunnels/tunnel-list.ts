import { isAddressOfUrl } from '../../lib/network/ip-address.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import type { ConnectedEndpoint } from '../connectors/connector.ts';
import { AgentError } from '../errors/agent-error.ts';
import type { Tunnel, TunnelState, TunnelStatus } from './tunnel.ts';
import type { TunnelSupervisor } from './tunnel-supervisor.ts';

/** A tunnel for readers; its members always show the current state. */
export interface TunnelView {
  readonly url: string;
  readonly tunnel: Tunnel;
  readonly status: TunnelStatus;
  /** Null while it has none. */
  readonly endpoint: ConnectedEndpoint | null;
}

/** All tunnels: finds them, counts them by state, and knows which domains are in use. */
export class TunnelList {
  readonly #supervisors = new Map<string, TunnelSupervisor>();
  readonly #counts: Record<TunnelState, number> = { online: 0, connecting: 0, offline: 0, failed: 0 };
  /** Domains of tunnels, including those that are being created. */
  readonly #domains = new Set<string>();
  #index: TunnelNames<TunnelSupervisor> | null = null;

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
      throw domainInUse(domain, `another tunnel of this agent uses ${domain}; delete it or choose another domain`);
    }
    this.#domains.add(domain);
  }

  /** @throws {AgentError} 409 when no tunnel may use the domain; it may have been reserved after a tunnel was created */
  refuseReserved(domain: string): void {
    if (!this.reservedDomains.includes(domain)) return;
    throw domainInUse(domain, `${domain} is the agent's own domain; choose another domain`);
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

  #urlParts(): TunnelNames<TunnelSupervisor> {
    this.#index ??= new TunnelNames(this.#supervisors.values());
    return this.#index;
  }
}

function domainInUse(domain: string, why: string): AgentError {
  return new AgentError('ERR_AGENT_DOMAIN_IN_USE', `domain in use: ${why}`, { details: { domain } });
}

interface Addressed {
  readonly url: string;
  readonly tunnel?: { readonly domain: string };
}

const DEFAULT_PORTS: Record<string, string> = { 'https:': '443', 'http:': '80', 'tls:': '443' };

/** The names of a tunnel from the most exact to the shortest: the whole URL, `host:port`, host, first label. */
function namesOf({ url, tunnel }: Addressed): readonly string[] {
  const { protocol, hostname, host, port } = new URL(url.toLowerCase());
  // At a gateway without a domain, all tunnels have its address; they may have names as well.
  if (isAddressOfUrl(hostname)) {
    const name = tunnel?.domain.toLowerCase() ?? host;
    return [url.toLowerCase(), host, name, name === host ? port : (name.split('.')[0] ?? '')];
  }
  const label = hostname.split('.')[0] ?? '';
  return [url.toLowerCase(), `${hostname}:${port || DEFAULT_PORTS[protocol]}`, hostname, label];
}

/**
 * Finds tunnels by a part of their URL, and the shortest part for each. A part must equal one of {@link namesOf}, and
 * the more exact name wins: `cam` matches the host `cam` before the first label of `cam.example.com`.
 */
export class TunnelNames<T extends Addressed> {
  readonly #levels: Map<string, T[]>[] = [new Map(), new Map(), new Map(), new Map()];

  constructor(tunnels: Iterable<T>) {
    for (const tunnel of tunnels) {
      for (const [level, name] of namesOf(tunnel).entries()) {
        const found = this.#levels[level]?.get(name);
        if (found) found.push(tunnel);
        else this.#levels[level]?.set(name, [tunnel]);
      }
    }
  }

  /** @throws {AgentError} 404 when no tunnel matches, 409 naming all of them when several do */
  find(part: string): T {
    const matches = this.#matches(part.toLowerCase().replace(/\/$/, ''));
    const [first, ...others] = matches;
    if (!first)
      throw new AgentError(
        'ERR_AGENT_TUNNEL_NOT_FOUND',
        `no such tunnel: ${part}; GET /tunnels lists them, and so does ${ownCommand('tunnels list')}`,
      );
    if (others.length === 0) return first;
    const urls = matches.map(({ url }) => url);
    // Two tunnels share a URL only when a file was edited by hand. The later one is the copy.
    if (new Set(urls).size === 1) return others.at(-1) ?? first;
    throw new AgentError(
      'ERR_AGENT_AMBIGUOUS',
      `ambiguous tunnel: ${part} matches ${urls.join(' and ')}; give more of the URL`,
      {
        details: Object.fromEntries(urls.map((url, at) => [`match ${at + 1}`, url])),
      },
    );
  }

  shortestFor(tunnel: T): string {
    const names = namesOf(tunnel).toReversed();
    const unique = names.find((name) => {
      const matches = this.#matches(name);
      return matches.length === 1 && matches[0] === tunnel;
    });
    return unique ?? tunnel.url;
  }

  #matches(name: string): readonly T[] {
    for (const level of this.#levels) {
      const found = level.get(name);
      if (found) return found;
    }
    return [];
  }
}
