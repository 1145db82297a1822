import { messageOf } from '../../lib/errors.ts';
import type { IdSource } from '../../lib/ids.ts';
import { type CompiledPolicy, PolicyRefused } from '../../traffic-policy/engine.ts';
import { EDGE_TERMINATION } from '../endpoint.ts';
import { demandsOf, type EndpointDemands } from '../endpoint-options/endpoint-options.ts';
import { isOfOptions } from '../endpoint-options/option-rules.ts';
import type { EndpointPolicies } from '../endpoint-policies.ts';
import type { EndpointRegistry } from '../endpoints.ts';
import type { ListenerOwner } from './agent-listener.ts';
import { BoundEndpoint } from './bound-endpoint.ts';
import { checkEndpointName, randomEndpointName } from './endpoint-name.ts';
import { type BindRequest, HttpOptions } from './messages.ts';
import { Refusal } from './refusal.ts';

export interface EndpointBinderOptions {
  endpoints: EndpointRegistry;
  ids: IdSource;
  policies: EndpointPolicies;
  /** Base domain of the names that the gateway chooses, lower case. */
  domain: string;
  /** The public URL of a hostname. */
  urlOf(protocol: 'http' | 'https', host: string): string;
  /** The port in it. */
  portOf(protocol: 'http' | 'https'): number;
}

const ENDPOINT_ID = /^[A-Za-z0-9_-]{1,64}$/;
const PUBLIC_ID = /^ep_[0-9A-Za-z]{27}$/;
const NAME_ATTEMPTS = 10;

/** What an agent gets for a request to bind: the endpoint, and the answer that the SDK sends back on a reconnect. */
export interface Binding {
  endpoint: BoundEndpoint;
  answer: { Id: string; URL: string; Proto: string; Opts: object; Extra: { Token: string } };
}

/** Turns an agent's request into an endpoint that is online, or into a refusal. */
export class EndpointBinder {
  readonly #options: EndpointBinderOptions;

  constructor(options: EndpointBinderOptions) {
    this.#options = options;
  }

  /**
   * Puts an endpoint online for a session.
   *
   * @throws {Refusal} when it cannot be had as asked for
   */
  async bind(owner: ListenerOwner, request: BindRequest): Promise<Binding> {
    const protocol = httpProtocol(request.Proto);
    const options = parseOptions(request.Opts);
    const { ForwardsTo: forwardsTo, Extra: extra } = request;
    const demands = demandsOf(request.Opts, { protocol, forwardsTo, ipPolicyRef: extra.IPPolicyRef });
    refuseUnsupported(request, options, demands);
    const policyText = policyOf(options);
    await this.#options.policies.load(policyText, demands.frame);
    const host = await this.#claim(owner, protocol, wantedName(request, options, this.#options.domain));
    const id = this.#endpointId(request.Id);
    const url = this.#options.urlOf(protocol, host);
    const policy = refusing(() => this.#options.policies.compile(policyText, protocol, url, demands.frame));
    const endpoint = new BoundEndpoint(
      {
        id,
        publicId: this.#publicId(id),
        url,
        ...{ protocol, host, port: this.#options.portOf(protocol) },
        internal: false,
        pooled: false,
        policy,
        tls: protocol === 'https' ? EDGE_TERMINATION : null,
        proxyProtocol: 0,
        http2Upstream: false,
        forwardsTo: request.ForwardsTo,
        metadata: request.Extra.Metadata,
      },
      owner,
    );
    // Nothing was awaited since the claim, so the name is still free.
    this.#options.endpoints.add(endpoint);
    return { endpoint, answer: answerOf(endpoint, request, options) };
  }

  /** Takes an endpoint offline and cuts its connections. */
  unbind(endpoint: BoundEndpoint, reason: Error): void {
    this.#options.endpoints.remove(endpoint);
    endpoint.owner.gate.cut(endpoint.lane, reason);
  }

  async #claim(owner: ListenerOwner, protocol: 'http' | 'https', wanted: string | null): Promise<string> {
    const { endpoints, portOf } = this.#options;
    const addressOf = (host: string) => ({ protocol, host, port: portOf(protocol), internal: false });
    const isTaken = (host: string) => endpoints.holders(addressOf(host)).length > 0;
    const host = wanted === null ? this.#freeName(isTaken) : checkEndpointName(wanted);
    owner.credential.authorize({ kind: 'hostname', hostname: host });
    const [holder] = endpoints.holders(addressOf(host));
    if (holder) {
      await this.#takeOver(holder, owner);
      // That took a while, in which the right may have gone.
      owner.credential.authorize({ kind: 'hostname', hostname: host });
    }
    if (!owner.online) throw new Refusal('ERR_NGROK_741', 'the session ended while the endpoint was being bound');
    if (isTaken(host)) throw alreadyOnline(host);
    return host;
  }

  #freeName(isTaken: (host: string) => boolean): string {
    for (let attempt = 0; attempt < NAME_ATTEMPTS; attempt++) {
      const name = randomEndpointName(this.#options.domain);
      if (!isTaken(name)) return name;
    }
    throw new Refusal('ERR_NGROK_741', 'no free name was found; ask for one');
  }

  #endpointId(offered: string): string {
    if (offered === '') return this.#options.ids.next('ep');
    if (ENDPOINT_ID.test(offered)) return offered;
    throw new Refusal('ERR_NGROK_301', 'the id of the endpoint is malformed');
  }

  /** An agent that binds again keeps its id; it may name any, and must not take that of another agent's endpoint. */
  #publicId(id: string): string {
    const { endpoints, ids } = this.#options;
    const isOurs = PUBLIC_ID.test(id) && !endpoints.list().some(({ publicId }) => publicId === id);
    return isOurs ? id : ids.next('ep');
  }

  /** Ends the holder's session when it is a dead one of the same credential. */
  async #takeOver(holder: BoundEndpoint, claimant: ListenerOwner): Promise<void> {
    const session = holder.owner;
    const ours = session.credential.id === claimant.credential.id && session !== claimant;
    if (!ours || (await session.isAlive())) throw alreadyOnline(holder.host);
    session.end(new Error('the agent does not answer, and its endpoint was bound anew'));
  }
}

function alreadyOnline(host: string): Refusal {
  return new Refusal('ERR_NGROK_334', `the endpoint ${host} is already online`);
}

function httpProtocol(proto: string): 'http' | 'https' {
  if (proto === 'http' || proto === 'https') return proto;
  throw new Refusal('ERR_NGROK_332', `the protocol ${JSON.stringify(proto)} is not supported by this gateway yet`);
}

function parseOptions(opts: unknown): HttpOptions {
  const parsed = HttpOptions.safeParse(opts ?? {});
  if (parsed.success) return parsed.data;
  throw new Refusal('ERR_NGROK_301', 'the options of the endpoint are invalid', { cause: parsed.error });
}

/** An option that would not be carried out is refused, for its user relies on it. */
function refuseUnsupported(request: BindRequest, options: HttpOptions, demands: EndpointDemands): void {
  const asked: string[] = [];
  if (demands.clientAuthorities.length > 0) asked.push('MutualTLSCA');
  if (demands.websocketTcp) asked.push('WebsocketTCPConverter');
  if (options.ProxyProto !== 0) asked.push('ProxyProto');
  if (request.Extra.PoolingEnabled) asked.push('PoolingEnabled');
  if (request.ForwardsProto === 'http2') asked.push('ForwardsProto http2');
  if (request.Extra.Bindings.some((binding) => binding !== 'public')) asked.push('Bindings other than public');
  if (asked.length > 0) {
    throw new Refusal('ERR_NGROK_301', `this gateway does not support yet: ${asked.join(', ')}`);
  }
}

function policyOf({ Policy, TrafficPolicy }: HttpOptions): string {
  if (Policy !== '' && TrafficPolicy !== '') {
    throw new Refusal('ERR_NGROK_9025', 'Policy and TrafficPolicy cannot both be given');
  }
  return TrafficPolicy || Policy;
}

/** @throws {Refusal} when the policy, or what the options ask for, cannot be run */
function refusing(compile: () => CompiledPolicy): CompiledPolicy {
  try {
    return compile();
  } catch (error) {
    if (!(error instanceof PolicyRefused)) throw error;
    if (isOfOptions(error)) throw new Refusal('ERR_NGROK_301', messageOf(error), { cause: error });
    throw new Refusal('ERR_NGROK_9026', `the traffic policy cannot be used: ${messageOf(error)}`, { cause: error });
  }
}

/** The hostname asked for; null when the gateway is to choose. */
function wantedName(request: BindRequest, options: HttpOptions, base: string): string | null {
  const ways = [options.Domain, options.Hostname, options.Subdomain, hostOfUrl(options.URL)].filter(Boolean);
  if (ways.length > 1) throw new Refusal('ERR_NGROK_9021', 'the name of the endpoint is given in more than one way');
  if (options.Subdomain) return `${options.Subdomain}.${base}`;
  return ways[0] ?? hostOfToken(request.Extra.Token);
}

/** Go names the endpoint by its URL. */
function hostOfUrl(url: string): string {
  if (url === '') return '';
  const absolute = url.includes('://') ? url : `https://${url}`;
  if (!URL.canParse(absolute)) throw new Refusal('ERR_NGROK_9034', 'the URL of the endpoint is malformed');
  return new URL(absolute).hostname;
}

/** The SDK stores this answer, and sends its options and token when it binds again after a reconnect. */
function answerOf(endpoint: BoundEndpoint, request: BindRequest, options: HttpOptions): Binding['answer'] {
  const { Auth, HostHeaderRewrite, ProxyProto } = options;
  const named = { Domain: endpoint.host, Hostname: '', Subdomain: '' };
  const opts = { ...(request.Opts ?? {}), ...named, Auth, HostHeaderRewrite, ProxyProto };
  const { id, url, protocol, host } = endpoint;
  return { Id: id, URL: url, Proto: protocol, Opts: opts, Extra: { Token: tokenFor(host) } };
}

/** Carries the name across a restart of the gateway; it proves nothing, and need not, for the name is checked anew. */
function tokenFor(host: string): string {
  return Buffer.from(host).toString('base64url');
}

function hostOfToken(token: string): string | null {
  return token === '' ? null : Buffer.from(token, 'base64url').toString();
}
