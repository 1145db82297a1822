import { randomUUID } from 'node:crypto';
import type { Log } from '../../lib/log/log.ts';
import type { TrafficCounters } from '../upstreams/traffic-counters.ts';
import { displayUpstream } from '../upstreams/upstream.ts';
import type { UpstreamGuard } from '../upstreams/upstream-guard.ts';
import { domainAtSite, openChoice, type Site } from './site-names.ts';
import { domainOf, type Tunnel, type TunnelRequest } from './tunnel.ts';
import type { TunnelList } from './tunnel-list.ts';
import type { OpenTunnel, TunnelOpener } from './tunnel-opener.ts';
import { specOfRequest, type TunnelSpec } from './tunnel-spec.ts';
import type { TunnelStore } from './tunnel-store.ts';

export interface TunnelCreationOptions {
  list: Pick<TunnelList, 'claimDomain' | 'releaseDomain'>;
  opener: TunnelOpener;
  guard: UpstreamGuard;
  store: TunnelStore;
  site: Site | null;
  log: Log;
  /** Throws without a session. */
  requireSession: () => void;
}

/** A tunnel that is online and on the disk. Its domain is claimed. */
export interface CreatedTunnel {
  tunnel: Tunnel;
  open: OpenTunnel;
}

/** Attempts before giving up on a gateway that keeps choosing domains in use. */
const MAX_CHOICES = 16;

/** Creates tunnels: claims the domain, checks the upstream, opens the endpoint, saves the tunnel. */
export class TunnelCreation {
  constructor(private readonly options: TunnelCreationOptions) {}

  /**
   * @param traffic what will count the tunnel's traffic
   * @param notice called with a remark for the person who asked for it
   * @throws {ApiError} 400 for an upstream or policy that is not allowed, 409 when the domain is in use,
   *   503 without a session, 500 when the tunnel cannot be saved, and the gateway's refusals; then nothing is left of it
   */
  async create(
    request: TunnelRequest,
    traffic: TrafficCounters,
    notice: (text: string) => void,
  ): Promise<CreatedTunnel> {
    const { list, guard, site, requireSession } = this.options;
    const spec = specOfRequest(request);
    const choice = domainAtSite(request, site);
    const claimed: string[] = [];
    const claim = (domain: string) => {
      list.claimDomain(domain);
      claimed.push(domain);
    };
    let kept: string | null = null;
    try {
      for (const domain of [choice.otherwise, choice.domain]) if (domain !== null) claim(domain);
      // The session first: offline, no name resolves, and the error would blame the upstream.
      requireSession();
      await guard.check(spec.upstream);
      const { opened: open, reason } = await openChoice(choice, (domain) =>
        this.#openUnused({ ...spec, domain }, traffic, claim),
      );
      const domain = (reason === null ? choice.domain : choice.otherwise) ?? domainOf(open.endpoint.url, spec.protocol);
      if (reason !== null) notice(`${reason}; this tunnel is ${domain}`);
      const tunnel = await this.#save({ ...spec, domain }, request.policy ?? null, open);
      kept = domain;
      return { tunnel, open };
    } finally {
      for (const domain of claimed) if (domain !== kept) list.releaseDomain(domain);
    }
  }

  /**
   * Opens an endpoint. A gateway that chooses the domain may choose that of a tunnel which is offline just now. Such endpoints
   * stay open until it has chosen another one, or it could choose the same one again.
   */
  async #openUnused(spec: TunnelSpec, traffic: TrafficCounters, claim: (domain: string) => void): Promise<OpenTunnel> {
    const unusable: OpenTunnel[] = [];
    try {
      for (;;) {
        const open = await this.options.opener.open(spec, traffic);
        try {
          if (spec.domain === null) claim(domainOf(open.endpoint.url, spec.protocol));
          return open;
        } catch (error) {
          unusable.push(open);
          if (unusable.length === MAX_CHOICES) throw error;
        }
      }
    } finally {
      await Promise.all(unusable.map((open) => this.#close(open)));
    }
  }

  async #save(
    { protocol, upstream, domain }: TunnelSpec & { domain: string },
    policy: Tunnel['policy'],
    open: OpenTunnel,
  ): Promise<Tunnel> {
    const { store, log } = this.options;
    const { url } = open.endpoint;
    const forwards_to = displayUpstream(upstream);
    const created_at = new Date().toISOString();
    const tunnel: Tunnel = { id: randomUUID(), protocol, forwards_to, domain, url, policy, created_at };
    try {
      await store.save(tunnel);
    } catch (error) {
      await this.#close(open);
      throw error;
    }
    log.info({ url, upstream: forwards_to }, 'tunnel created');
    return tunnel;
  }

  /** A public endpoint without a tunnel must not stay open. */
  async #close(open: OpenTunnel): Promise<void> {
    await open.close().catch((err: unknown) => {
      this.options.log.error({ err, url: open.endpoint.url }, 'unused endpoint could not be closed');
    });
  }
}
