import { randomUUID } from 'node:crypto';
import { ApiError } from '../../lib/errors.ts';
import { displayUpstream } from '../../lib/network/upstream-address.ts';
import {
  defaultsFor,
  isLegacy,
  type PolicyAction,
  type PolicyInput,
  type TrafficPolicyDocument,
  toTrafficPolicy,
  withOriginalPlaces,
} from '../../traffic-policy/document.ts';
import {
  type ConnectedEndpoint,
  type Connector,
  domainOf,
  type UpstreamOptions,
  upstreamOptionsOf,
} from '../connectors/connector.ts';
import type { AgentContext } from '../context/agent-context.ts';
import { AgentError } from '../errors/agent-error.ts';
import type { TrafficCounters } from '../upstreams/traffic-counters.ts';
import type { PreparedUpstream, UpstreamDialer } from '../upstreams/upstream-dialer.ts';
import type { UpstreamGuard } from '../upstreams/upstream-guard.ts';
import { checkCaFile } from '../upstreams/upstream-tls.ts';
import { domainAtSite, openChoice, type Site } from './site-names.ts';
import { requestOf, type Tunnel, type TunnelRequest } from './tunnel.ts';
import type { TunnelList } from './tunnel-list.ts';
import type { TunnelStore } from './tunnels-file.ts';

/** Attempts before giving up on a gateway that keeps choosing domains in use. */
const MAX_CHOICES = 16;

/** Opens the endpoints of tunnels, new and stored ones. */
export class TunnelOpener {
  constructor(
    private readonly context: Pick<AgentContext, 'log'>,
    private readonly own: {
      connector: Connector;
      dialer: UpstreamDialer;
      list: Pick<TunnelList, 'claimDomain' | 'releaseDomain'>;
      guard: UpstreamGuard;
      store: TunnelStore;
      site: Site | null;
      /** Whether the gateway is ngrok's network, which does not have the actions of ours. */
      isCloud: boolean;
      requireSession: () => void;
    },
    /** In force on every tunnel without a policy of its own. */
    public defaults: PolicyInput,
  ) {}

  /**
   * Opens a new tunnel.
   *
   * @param notice called with a remark for the person who asked for it
   * @throws {ApiError} 400 for an upstream or policy that is not allowed, 409 when the domain is in use,
   *   503 without a session, 500 when the tunnel cannot be saved, and the gateway's refusals; then nothing is left of it
   * @returns the tunnel, which is online and on the disk; its domain is claimed. Also why its upstream's name does not resolve,
   *   if so
   */
  async create(
    request: TunnelRequest,
    traffic: TrafficCounters,
    notice: (text: string) => void,
  ): Promise<{ tunnel: Tunnel; endpoint: ConnectedEndpoint; unresolved: AgentError | null }> {
    const { list, guard, site, requireSession } = this.own;
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
      const unresolved = await guard.admit(forwards_to);
      await checkCaFile(request);
      const open = (domain: string | null) => this.#openUnused({ ...request, domain }, traffic, claim);
      const { opened: endpoint, domain: asked, reason } = await openChoice(choice, open);
      const domain = asked ?? domainOf(endpoint.url, protocol);
      if (reason !== null) notice(`${reason}; this tunnel is ${domain}`);
      const { host_header, ...unsupported } = upstreamOptionsOf(request);
      if (this.own.isCloud && Object.keys(unsupported).length > 0)
        notice(`ngrok's network does not support ${Object.keys(unsupported).join(', ')}: no effect`);
      const tunnel = await this.#save({ ...request, domain }, endpoint);
      kept = domain;
      return { tunnel, endpoint, unresolved };
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
  ): Promise<ConnectedEndpoint> {
    const unusable: ConnectedEndpoint[] = [];
    try {
      for (;;) {
        const endpoint = await this.#open(request, traffic);
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
    endpoint: ConnectedEndpoint,
  ): Promise<Tunnel> {
    const { log } = this.context;
    const { store } = this.own;
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
  async #close(endpoint: ConnectedEndpoint): Promise<void> {
    await endpoint.close().catch((err: unknown) => {
      this.context.log.error({ err, url: endpoint.url }, 'unused endpoint could not be closed');
    });
  }

  /**
   * Opens a stored tunnel. A file can have declared one with a label only, which gets its domain now.
   *
   * @throws {ApiError} as the connector's open() does, or 400 when the upstream or the policy is not allowed
   */
  async reopen(tunnel: Tunnel, traffic: TrafficCounters): Promise<ConnectedEndpoint> {
    const { log } = this.context;
    const { site } = this.own;
    const request = requestOf(tunnel);
    const open = (domain: string | null) => this.#open({ ...request, domain }, traffic);
    const { opened, reason } = await openChoice(domainAtSite(request, site), open);
    if (reason !== null) log.info({ url: opened.url, reason }, 'tunnel got a name of this device');
    return opened;
  }

  async #open(request: TunnelRequest, traffic: TrafficCounters): Promise<ConnectedEndpoint> {
    for (;;) {
      const { defaults } = this;
      const endpoint = await this.#openOnce(request, traffic, defaults);
      await requireUrl(endpoint);
      if (request.policy || defaults === this.defaults) return endpoint;
      // The default policies were reloaded meanwhile: with the old ones, the tunnel could admit clients it should not.
      await endpoint.close();
    }
  }

  async #openOnce(
    { protocol, forwards_to, domain, policy, ...options }: TunnelRequest,
    traffic: TrafficCounters,
    defaults: PolicyInput,
  ): Promise<ConnectedEndpoint> {
    const { connector, dialer } = this.own;
    const trafficPolicy = policy ? toTrafficPolicy(policy, protocol) : defaultsFor(protocol, defaults);
    const upstream = dialer.prepare(forwards_to, { protocol, ...options }, traffic);
    try {
      const endpoint = await connector.open({
        protocol,
        ...(domain && { domain }),
        upstream,
        forwardsTo: displayUpstream(forwards_to),
        trafficPolicy: this.#withUpstreamOptions(
          trafficPolicy,
          upstreamOptionsOf(options),
          displayUpstream(forwards_to),
        ),
        options,
      });
      return this.#withUpstream(endpoint, upstream);
    } catch (error) {
      await upstream.release();
      throw withPlacesOf(policy ?? defaults, trafficPolicy, error);
    }
  }

  /**
   * The policy, and at its end what the gateway should do for the upstream: so the places of the author's rules stay. ngrok's
   * network sets headers only.
   */
  #withUpstreamOptions(policy: TrafficPolicyDocument, config: UpstreamOptions, address: string): TrafficPolicyDocument {
    const { host_header: name } = config;
    if (Object.keys(config).length === 0 || (this.own.isCloud && name === undefined)) return policy;
    const host = name === 'rewrite' ? address.replace(/^https?:\/\//, '') : name;
    const action: PolicyAction =
      this.own.isCloud && host !== undefined
        ? { type: 'add-headers', config: { headers: { host } } }
        : { type: 'gateway-upstream', config };
    return { ...policy, on_http_request: [...(policy.on_http_request ?? []), { actions: [action] }] };
  }

  /** The same endpoint; when it is closed or has ended, nothing is left of what the agent carries for it. */
  #withUpstream(endpoint: ConnectedEndpoint, upstream: PreparedUpstream): ConnectedEndpoint {
    const { url, ended, watchRequests, policyWarnings, domainUrl } = endpoint;
    void ended
      .then(() => upstream.release())
      .catch((err: unknown) => this.context.log.warn({ err, url }, 'upstream relay could not be closed'));
    const close = () => endpoint.close().finally(() => upstream.release());
    return {
      ...{ url, ended, close },
      ...(watchRequests && { watchRequests }),
      ...(policyWarnings && { policyWarnings }),
      ...(domainUrl && { domainUrl }),
    };
  }
}

/** The gateway only knows the policy in today's shape; its author may have written another one. */
function withPlacesOf(policy: PolicyInput, sent: TrafficPolicyDocument, error: unknown): unknown {
  if (!(error instanceof ApiError) || !isLegacy(policy)) return error;
  const translate = (text: string) => withOriginalPlaces(text, sent, policy);
  const details = Object.entries(error.details).map(([place, problem]) => [translate(place), translate(problem)]);
  if (details.every(([place = '']) => place in error.details)) return error;
  return new ApiError(error.status, error.code, translate(error.message), {
    details: Object.fromEntries(details),
    cause: error,
  });
}

/** Tunnels are kept and found by their URL, and a file with an invalid one would count as damaged. */
async function requireUrl({ url, close }: ConnectedEndpoint): Promise<void> {
  if (URL.canParse(url)) return;
  await close();
  const named = JSON.stringify(url.slice(0, 100));
  throw new AgentError('ERR_AGENT_GATEWAY_REFUSED', `invalid endpoint URL from the gateway: ${named}`);
}
