import { randomUUID } from 'node:crypto';
import type { Log } from '../../lib/log/log.ts';
import { toTrafficPolicy } from '../../traffic-policy/document.ts';
import { domainOf, type Endpoint } from '../connectors/connector.ts';
import type { TrafficCounters } from '../upstreams/traffic-counters.ts';
import { displayUpstream } from '../upstreams/upstream.ts';
import type { UpstreamGuard } from '../upstreams/upstream-guard.ts';
import { domainAtSite, openChoice, type Site } from './site-names.ts';
import type { Tunnel, TunnelRequest } from './tunnel.ts';
import type { TunnelList } from './tunnel-list.ts';
import type { TunnelOpener } from './tunnel-opener.ts';
import type { TunnelStore } from './tunnel-store.ts';

export interface TunnelCreationOptions {
  list: Pick<TunnelList, 'claimDomain' | 'releaseDomain'>;
  opener: TunnelOpener;
  guard: UpstreamGuard;
  store: TunnelStore;
  site: Site | null;
  log: Log;
  requireSession: () => void;
}

/** Attempts before giving up on a gateway that keeps choosing domains in use. */
const MAX_CHOICES = 16;

export class TunnelCreation {
  constructor(private readonly options: TunnelCreationOptions) {}

  /**
   * @param notice called with a remark for the person who asked for it
   * @throws {ApiError} 400 for an upstream or policy that is not allowed, 409 when the domain is in use,
   *   503 without a session, 500 when the tunnel cannot be saved, and the gateway's refusals; then nothing is left of it
   * @returns the tunnel, which is online and on the disk; its domain is claimed
   */
  async create(
    request: TunnelRequest,
    traffic: TrafficCounters,
    notice: (text: string) => void,
  ): Promise<{ tunnel: Tunnel; endpoint: Endpoint }> {
    const { list, guard, site, requireSession } = this.options;
    const { protocol, forwards_to, policy } = request;
    // Checked before anything happens.
    if (policy) toTrafficPolicy(policy, protocol);
    const choice = domainAtSite(request, site);
    const claimed: string[] = [];
    const claim = (domain: string) => {
      list.claimDomain(domain);
      claimed.push(domain);
    };
    let kept: string | null = null;
    try {
      for (const domain of choice.toReversed()) if (domain !== null) claim(domain);
      // The session first: offline, no name resolves, and the error would blame the upstream.
      requireSession();
      await guard.check(forwards_to);
      const open = (domain: string | null) => this.#openUnused({ ...request, domain }, traffic, claim);
      const { opened: endpoint, domain: asked, reason } = await openChoice(choice, open);
      const domain = asked ?? domainOf(endpoint.url, protocol);
      if (reason !== null) notice(`${reason}; this tunnel is ${domain}`);
      const tunnel = await this.#save({ ...request, domain }, endpoint);
      kept = domain;
      return { tunnel, endpoint };
    } finally {
      for (const domain of claimed) if (domain !== kept) list.releaseDomain(domain);
    }
  }

  /**
   * Opens an endpoint. A gateway that chooses the domain may choose that of a tunnel which is offline just now. Such endpoints
   * stay open until it has chosen another one, or it could choose the same one again.
   */
  async #openUnused(
    request: TunnelRequest,
    traffic: TrafficCounters,
    claim: (domain: string) => void,
  ): Promise<Endpoint> {
    const unusable: Endpoint[] = [];
    try {
      for (;;) {
        const endpoint = await this.options.opener.open(request, traffic);
        try {
          if (!request.domain) claim(domainOf(endpoint.url, request.protocol));
          return endpoint;
        } catch (error) {
          unusable.push(endpoint);
          if (unusable.length === MAX_CHOICES) throw error;
        }
      }
    } finally {
      await Promise.all(unusable.map((endpoint) => this.#close(endpoint)));
    }
  }

  async #save(
    { protocol, forwards_to: upstream, domain, policy = null, ...options }: TunnelRequest & { domain: string },
    endpoint: Endpoint,
  ): Promise<Tunnel> {
    const { store, log } = this.options;
    const { url } = endpoint;
    const forwards_to = displayUpstream(upstream);
    const created_at = new Date().toISOString();
    const tunnel: Tunnel = { id: randomUUID(), protocol, forwards_to, domain, url, policy, created_at, ...options };
    try {
      await store.save(tunnel);
    } catch (error) {
      await this.#close(endpoint);
      throw error;
    }
    log.info({ url, upstream: forwards_to }, 'tunnel created');
    return tunnel;
  }

  /** A public endpoint without a tunnel must not stay open. */
  async #close(endpoint: Endpoint): Promise<void> {
    await endpoint.close().catch((err: unknown) => {
      this.options.log.error({ err, url: endpoint.url }, 'unused endpoint could not be closed');
    });
  }
}
