import {
  type BindLabeledRequest,
  BindOptions,
  type BindRequest,
  type PatchRequest,
  parseMessage,
} from '../../agent-protocol/messages.ts';
import { RpcError } from '../../agent-protocol/rpc.ts';
import { messageOf } from '../../lib/errors.ts';
import { readKeyPair, requireSoundSignatures } from '../../lib/tls/usual-keys.ts';
import { type CompiledPolicy, PolicyRefused } from '../../traffic-policy/engine.ts';
import type { TlsTermination } from '../../traffic-policy/policy-subjects.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import { isOfOptions } from '../endpoint-options/client-options.ts';
import { clientOptionsText, demandsOf, type EndpointDemands } from '../endpoint-options/endpoint-options.ts';
import {
  addressOptions,
  publicUrlOf,
  tokenFor,
  type WantedAddress,
  wantedAddress,
} from '../endpoints/endpoint-address.ts';
import { EndpointClaims } from '../endpoints/endpoint-claims.ts';
import type { EndpointPolicies, PolicyHolder, PolicyTarget } from '../endpoints/endpoint-policies.ts';
import type { Absence } from '../endpoints/endpoint-registry.ts';
import type { LiveEndpoint } from '../endpoints/live-view.ts';
import { EDGE_TERMINATION, type EndpointAddress, type OnlineEndpoint } from '../endpoints/online-endpoint.ts';
import type { PortNames } from '../endpoints/port-names.ts';
import type { PortLease, TcpPortAllocator } from '../endpoints/tcp-port-allocator.ts';
import { BoundEndpoint, LabeledTunnel, type ListenerOwner } from './agent-listener.ts';

/** Has addresses leased from other gateways of a cluster. */
export interface AddressLeasing {
  /**
   * The endpoint then has to go online, or not to; `settle` says that this is decided.
   * @throws {RpcError} when another gateway has its address
   */
  take(endpoint: LiveEndpoint): Promise<void>;
  settle(publicId: string): void;
  /** Whether another authtoken has an identifier at another gateway. */
  isIdOfOther(id: string, credentialId: string): boolean;
}

const ENDPOINT_ID = /^[A-Za-z0-9_-]{1,64}$/;
const PUBLIC_ID = /^ep_[0-9A-Za-z]{27}$/;

/**
 * The `TLSTermination` of an endpoint that terminates TLS with the gateway's certificate. Without it an SDK takes the
 * bytes it gets for its clients' own TLS. Agents send it back when they bind again.
 */
const OWN_CERTIFICATE = { cert: '', key: '' };

/** The result of a BIND: the endpoint, and the answer that the SDK sends back when it reconnects. */
interface Bound {
  endpoint: BoundEndpoint;
  answer: { Id: string; URL: string; Proto?: string; Opts?: object; Extra?: { Token: string; TunnelID: string } };
  /** Whether the agent asked for its name, which has to be kept before the agent gets the answer. */
  isWanted: boolean;
}

export class EndpointBinder {
  readonly #claims: EndpointClaims;
  readonly #leases = new WeakMap<BoundEndpoint, PortLease>();
  /** What agents have sent for endpoints under names that they asked for. */
  readonly #sources = new WeakMap<BoundEndpoint, { text: string; options: string }>();

  constructor(
    private readonly context: Pick<GatewayContext, 'store' | 'endpoints' | 'addresses' | 'domains'>,
    private readonly own: {
      policies: EndpointPolicies;
      tcpPorts: TcpPortAllocator | null;
      portNames?: PortNames | null;
      leases: AddressLeasing | null;
      /** Records each policy that an endpoint has got under a name that its agent asked for; null: nobody wants to know. */
      watch: { note(holder: PolicyHolder, source: string): void } | null;
    },
  ) {
    this.#claims = new EndpointClaims(context, own.tcpPorts, own.portNames);
  }

  /** @param hold called synchronously before it goes online, so that it ends with its session @throws {RpcError} */
  async bind(owner: ListenerOwner, request: BindRequest, hold: (endpoint: BoundEndpoint) => void): Promise<Bound> {
    const options = parseMessage(BindOptions, request.Opts ?? {}, 'ERR_NGROK_301', 'the options of the endpoint are');
    const wanted = this.#withName(owner, request, wantedAddress(request, options, this.context.addresses));
    const { protocol } = wanted;
    const { ForwardsTo: forwardsTo, Extra: extra } = request;
    const demands = demandsOf(request.Opts, { protocol, forwardsTo, ipPolicyRef: extra.IPPolicyRef });
    const text = policyOf(options);
    const claim = await this.#claims.claim(owner, wanted, extra.PoolingEnabled);
    const { address, lease, isWanted } = claim;
    try {
      const url = publicUrlOf(address, this.context.addresses);
      const target = { ...address, url, payer: owner.credential.id, frame: demands.frame };
      const policy = await this.#compile(text, target);
      const endpoint = this.#endpoint(owner, { ...address, url }, request, options, demands, policy);
      await this.#leased(endpoint, () => {
        // Nothing is awaited from here on, so an address that is free now is free when the endpoint goes online.
        this.#claims.check(owner, claim, extra.PoolingEnabled);
        this.#claims.checkPool(endpoint);
        hold(endpoint);
        if (lease) this.#leases.set(endpoint, lease);
        this.context.endpoints.add(endpoint);
      });
      const source = { text, options: clientOptionsText(request.Opts, extra.IPPolicyRef) };
      if (isWanted) this.#sources.set(endpoint, source);
      return { endpoint, answer: answerOf(endpoint, request, options, this.#domainUrlOf(address)), isWanted };
    } catch (error) {
      lease?.end();
      throw error;
    }
  }

  #domainUrlOf(address: EndpointAddress): string | null {
    const { addresses, domains } = this.context;
    return addresses.byPort?.domainUrlOf(address, domains, addresses.ports.https) ?? null;
  }

  /** To be called when an endpoint is online for good, and when it has changed. */
  notePolicy(endpoint: BoundEndpoint): void {
    const source = this.#sources.get(endpoint);
    if (source === undefined || this.own.watch === null) return;
    const { url, pooled, access, owner } = endpoint;
    const holder = { url, pooled, access, credentialId: owner.credential.id, address: owner.address };
    this.own.watch.note(holder, `${source.options}\n${source.text}`);
  }

  /** Goes on with an endpoint whose address no other gateway has. */
  async #leased(endpoint: BoundEndpoint, goOn: () => void): Promise<void> {
    const { endpoints } = this.context;
    const { leases } = this.own;
    if (!leases) return goOn();
    await leases.take(endpoint.view());
    try {
      if (endpoints.hasId(endpoint.publicId))
        throw new RpcError('ERR_NGROK_741', 'the endpoint id came online meanwhile; try again');
      goOn();
    } finally {
      leases.settle(endpoint.publicId);
    }
  }

  /**
   * The name for an endpoint that asks for none: that of the same agent's endpoint for the same upstream by the other
   * scheme. Version 2 of ngrok's agent binds http and https, and shows one name (`bind_tls: both`); it gives no client type,
   * as all SDKs do.
   */
  #withName(owner: ListenerOwner, { ForwardsTo: forwardsTo }: BindRequest, wanted: WantedAddress): WantedAddress {
    const { protocol, internal, host } = wanted;
    const isVersion2 = owner.agent.clientType === '' && owner.agent.version.startsWith('2.');
    if (!isVersion2 || host !== null || internal || (protocol !== 'http' && protocol !== 'https')) return wanted;
    const other = protocol === 'http' ? 'https' : 'http';
    const { endpoints } = this.context;
    const isSibling = (each: OnlineEndpoint) =>
      endpoints.holders(each).includes(each) &&
      each.protocol === other &&
      !each.internal &&
      each.forwardsTo === forwardsTo;
    const free = (each: OnlineEndpoint) => endpoints.holders({ ...wanted, host: each.host, port: 0 }).length === 0;
    const own = forwardsTo === '' ? [] : [...owner.listeners].filter((each) => each instanceof BoundEndpoint);
    const sibling = own.find((each) => isSibling(each) && free(each));
    return sibling ? { ...wanted, host: sibling.host } : wanted;
  }

  /** @param chargeMemory called with the bytes of a new policy; may throw @throws {RpcError} before anything is changed */
  async update(endpoint: BoundEndpoint, changes: PatchRequest, chargeMemory: (memory: number) => void): Promise<void> {
    const { Name, Description, Metadata, PoolingEnabled, TrafficPolicy } = changes;
    if ((PoolingEnabled ?? endpoint.pooled) !== endpoint.pooled) {
      throw new RpcError('ERR_NGROK_301', 'pooling cannot be changed while the endpoint is online; bind it again');
    }
    if (typeof TrafficPolicy === 'string') {
      const policy = await this.#replacement(endpoint, TrafficPolicy);
      chargeMemory(policy.memory);
      endpoint.policy = policy;
      this.context.endpoints.online.notePolicy(endpoint);
      const source = this.#sources.get(endpoint);
      if (source) source.text = TrafficPolicy;
    }
    endpoint.name = Name ?? endpoint.name;
    endpoint.description = Description ?? endpoint.description;
    endpoint.metadata = Metadata ?? endpoint.metadata;
    endpoint.updatedAt = new Date();
  }

  async #replacement(endpoint: BoundEndpoint, text: string): Promise<CompiledPolicy> {
    const { protocol, url, internal, frame, owner } = endpoint;
    const policy = await this.#compile(text, { protocol, url, payer: owner.credential.id, internal, frame });
    if (policy.terminatesTls === endpoint.policy.terminatesTls) return policy;
    throw new RpcError('ERR_NGROK_301', 'terminate-tls cannot be added or removed while the endpoint is online');
  }

  bindLabeled(owner: ListenerOwner, request: BindLabeledRequest): LabeledTunnel {
    const { Labels: labels, ForwardsTo: forwardsTo, ForwardsProto, Metadata: metadata } = request;
    if (Object.keys(labels).length === 0)
      throw new RpcError('ERR_NGROK_394', 'a labelled tunnel needs at least one label');
    if (speaksHttp2(ForwardsProto)) {
      throw new RpcError(
        'ERR_NGROK_301',
        'http2 is not supported for labelled tunnels: their connections are forwarded as bytes; leave out http2',
      );
    }
    owner.credential.authorize({ kind: 'labels', labels });
    const id = this.context.store.ids.next('tn');
    const tunnel = new LabeledTunnel({ id, publicId: id, labels, forwardsTo, metadata, http2Upstream: false }, owner);
    this.context.endpoints.addLabeled(tunnel);
    return tunnel;
  }

  /** Routes no further connection to an endpoint; others can have its address. @param absence why its agent is expected back */
  retire(endpoint: BoundEndpoint, absence: Absence | null = null): void {
    this.context.endpoints.retire(endpoint, absence);
    this.#endLease(endpoint, absence);
  }

  /** @param absence why its agent is expected back; null: it is not */
  unbind(listener: BoundEndpoint | LabeledTunnel, reason: Error, absence: Absence | null): void {
    const { endpoints } = this.context;
    if (listener instanceof LabeledTunnel) {
      endpoints.removeLabeled(listener);
    } else {
      endpoints.remove(listener, absence);
      this.#endLease(listener, absence);
    }
    listener.owner.gate.cut(listener.lane, reason);
  }

  /** The agent that has unbound an endpoint has left: it may come back. */
  expect(endpoint: BoundEndpoint): void {
    this.context.endpoints.expect(endpoint, 'lost');
  }

  #endLease(endpoint: BoundEndpoint, absence: Absence | null): void {
    const lease = this.#leases.get(endpoint);
    const { portNames } = this.own;
    this.#leases.delete(endpoint);
    if (lease && absence !== null && portNames?.needsPort(endpoint)) portNames.hold(lease);
    else lease?.end();
  }

  /** @throws {RpcError} when the policy or the options are invalid */
  async #compile(text: string, target: PolicyTarget): Promise<CompiledPolicy> {
    try {
      return await this.own.policies.compile(text, target);
    } catch (error) {
      if (!(error instanceof PolicyRefused)) throw error;
      if (isOfOptions(error)) throw new RpcError('ERR_NGROK_301', messageOf(error), { cause: error });
      throw new RpcError('ERR_NGROK_9026', `the traffic policy provided is invalid: ${messageOf(error)}`, {
        cause: error,
      });
    }
  }

  #endpoint(
    owner: ListenerOwner,
    address: EndpointAddress & { url: string },
    request: BindRequest,
    options: BindOptions,
    { frame, clientAuthorities, websocketTcp }: EndpointDemands,
    policy: CompiledPolicy,
  ): BoundEndpoint {
    const particulars = {
      ...this.#identify(owner, request.Id),
      ...address,
      pooled: request.Extra.PoolingEnabled,
      policy,
      frame,
      tls: this.#terminationOf(address, options, { clientAuthorities, byPolicy: policy.terminatesTls }),
      proxyProtocol: options.ProxyProto,
      websocketTcp,
      http2Upstream: speaksHttp2(request.ForwardsProto),
      forwardsTo: request.ForwardsTo,
      metadata: request.Extra.Metadata,
      name: request.Extra.Name,
      description: request.Extra.Description,
    };
    return new BoundEndpoint(particulars, owner);
  }

  /**
   * At a port of the gateway's address, clients of all endpoints see one certificate, and browsers send all ports the cookies of
   * each: what the gateway decrypts there, it must be able to read, so that no agent gets the cookies of others.
   */
  #terminationOf(
    address: EndpointAddress,
    options: BindOptions,
    demands: { clientAuthorities: readonly string[]; byPolicy: boolean },
  ): TlsTermination | null {
    const termination = terminationOf(address, options, demands);
    const isAtPort = this.context.addresses.byPort?.needsPort(address) === true;
    if (!isAtPort || address.protocol !== 'tls' || termination === null) return termination;
    if (termination.certificate !== null && !demands.byPolicy) return termination;
    throw new RpcError(
      'ERR_NGROK_301',
      'the gateway cannot terminate TLS for a tls endpoint without a domain: bind an https endpoint, or pass TLS through',
    );
  }

  /** An agent that reconnects keeps its endpoint id, unless another endpoint online has it. */
  #identify({ credential }: ListenerOwner, offered: string): { id: string; publicId: string } {
    const { endpoints, store } = this.context;
    const { ids } = store;
    const { leases } = this.own;
    const fresh = ids.next('ep');
    if (offered === '') return { id: fresh, publicId: fresh };
    if (!ENDPOINT_ID.test(offered)) throw new RpcError('ERR_NGROK_301', 'the endpoint id is malformed');
    const isOthers = endpoints.hasId(offered) || leases?.isIdOfOther(offered, credential.id);
    const isOurs = PUBLIC_ID.test(offered) && !isOthers;
    return { id: offered, publicId: isOurs ? offered : fresh };
  }
}

/** @throws {RpcError} when the edge does not support the protocol */
function speaksHttp2(appProtocol: string): boolean {
  if (appProtocol === 'http2') return true;
  if (appProtocol === '' || appProtocol === 'http1') return false;
  throw new RpcError('ERR_NGROK_15003', 'the upstream protocol is not supported; use http1 or http2');
}

function policyOf({ Policy, TrafficPolicy }: BindOptions): string {
  if (Policy !== '' && TrafficPolicy !== '') {
    throw new RpcError('ERR_NGROK_9025', 'Policy and TrafficPolicy cannot be combined; use TrafficPolicy');
  }
  return TrafficPolicy || Policy;
}

/**
 * How the edge terminates TLS for an endpoint; null when it does not. @throws {RpcError}
 * @param demands PEM of the CAs that must have signed its clients' certificates, and whether its policy terminates TLS
 */
function terminationOf(
  { protocol, internal }: EndpointAddress,
  options: BindOptions,
  { clientAuthorities, byPolicy }: { clientAuthorities: readonly string[]; byPolicy: boolean },
): TlsTermination | null {
  const termination = protocol === 'https' || byPolicy ? EDGE_TERMINATION : null;
  return withClientAuthorities(agentTermination(options) ?? termination, internal, clientAuthorities);
}

function withClientAuthorities(
  termination: TlsTermination | null,
  internal: boolean,
  clientAuthorities: readonly string[],
): TlsTermination | null {
  if (clientAuthorities.length === 0) return termination;
  if (internal)
    throw new RpcError('ERR_NGROK_301', 'mutual TLS is not supported on internal endpoints; bind a public one');
  if (termination === null) {
    throw new RpcError(
      'ERR_NGROK_301',
      'MutualTLSAtEdge: the edge must terminate TLS; add TLSTermination, or a policy with terminate-tls',
    );
  }
  return { ...termination, clientAuthorities };
}

/** @throws {RpcError} when the certificate and key cannot be used */
function agentTermination({ TLSTermination: option }: BindOptions): TlsTermination | null {
  if (!option) return null;
  if (option.cert === '' && option.key === '') return EDGE_TERMINATION;
  const [certificate = '', privateKey = ''] = [option.cert, option.key].map((pem) =>
    Buffer.from(pem, 'base64').toString(),
  );
  try {
    const { cert, key } = readKeyPair(certificate, privateKey);
    requireSoundSignatures(certificate);
    return { ...EDGE_TERMINATION, certificate: cert, privateKey: key };
  } catch (error) {
    throw new RpcError('ERR_NGROK_301', `TLSTermination: ${messageOf(error)}`);
  }
}

/** The SDK stores this answer, and sends its options and token back when it reconnects. */
function answerOf(
  endpoint: BoundEndpoint,
  request: BindRequest,
  options: BindOptions,
  domainUrl: string | null,
): Bound['answer'] {
  const { id, url, protocol, proxyProtocol, owner } = endpoint;
  const { warnings } = endpoint.policy;
  const more = owner.takesWarnings && {
    ...(warnings.length > 0 && { Warnings: warnings }),
    ...(domainUrl !== null && { DomainURL: domainUrl }),
  };
  if (owner.takesShortAnswers) return { Id: id, URL: url, ...more };
  const opts: Record<string, unknown> = {};
  // The SDK reads an answer in small pieces and sends a frame for each, so unset members are left out.
  for (const [name, value] of Object.entries(request.Opts ?? {})) if (value !== null) opts[name] = value;
  // The address goes into one member only. The Rust SDK needs the others, whatever the protocol.
  Object.assign(opts, { Hostname: '', Subdomain: '', URL: '' }, addressOptions(endpoint));
  opts.Auth = options.Auth;
  opts.HostHeaderRewrite = options.HostHeaderRewrite;
  opts.MutualTLSAtAgent = options.MutualTLSAtAgent;
  opts.ProxyProto = proxyProtocol;
  if (protocol === 'tls' && endpoint.tls) opts.TLSTermination = options.TLSTermination ?? OWN_CERTIFICATE;
  return {
    Id: id,
    URL: url,
    Proto: protocol,
    Opts: opts,
    ...more,
    Extra: { Token: tokenFor(endpoint), TunnelID: endpoint.tunnelId },
  };
}
