import { RpcError } from '../../agent-protocol/rpc.ts';
import { urlHostOf } from '../../lib/network/ip-address.ts';
import type { PortRange } from '../../lib/network/port-range.ts';
import { type AddressSettings, bindingOf, randomEndpointName, type WantedAddress } from './endpoint-address.ts';
import { type EndpointOwner, haveOneOwner, newestOfLargestShare } from './endpoint-owner.ts';
import type { EndpointRegistry } from './endpoint-registry.ts';
import type { EndpointAddress, OnlineEndpoint } from './online-endpoint.ts';
import type { PortNames } from './port-names.ts';
import { EndOfSession } from './session-end.ts';
import { NO_TCP_PORT, type PortLease, type TcpPortAllocator } from './tcp-port-allocator.ts';

/** An address that was free or can be shared; a tcp address comes with its open port. */
interface Claim {
  readonly address: EndpointAddress;
  readonly lease: PortLease | null;
  /** Whether the agent asked for this name. One that the gateway chose is nobody's afterwards. */
  readonly isWanted: boolean;
}

const NAME_ATTEMPTS = 10;

/** Finds addresses for endpoints: chooses a free one where the agent names none, and replaces those of dead sessions. */
export class EndpointClaims {
  constructor(
    private readonly gateway: { readonly addresses: AddressSettings; readonly endpoints: EndpointRegistry },
    private readonly tcpPorts: TcpPortAllocator | null,
    private readonly portNames: PortNames | null = null,
  ) {}

  /** Prepares an address for binding. Call {@link check} again right before. @throws {RpcError} */
  async claim(owner: EndpointOwner, wanted: WantedAddress, pooled: boolean): Promise<Claim> {
    const { protocol, internal, host, port } = wanted;
    if (protocol === 'tcp' && !internal && port === null) return this.#claimAnyPort(owner, wanted);
    const address = { protocol, internal, host: host ?? this.#freeName(wanted), port: port ?? 0 };
    const isWanted = host !== null;
    authorize(owner, address, isWanted);
    for (const holder of this.#conflicting(owner, address, pooled)) await takeOver(holder, owner, pooled);
    const claimed = await this.#claimPortOf(owner, address, wanted.namedPort ?? null);
    return { address, lease: claimed?.lease ?? null, isWanted };
  }

  /** @param namedPort wanted for a name that has none yet; null: any @returns null: clients need no port of its own */
  async #claimPortOf(
    owner: EndpointOwner,
    address: EndpointAddress,
    namedPort: number | null,
  ): Promise<{ port: number; lease: PortLease } | null> {
    const { portNames } = this;
    if (address.protocol === 'tcp' && !address.internal) return this.#claimPort(owner, address.port);
    if (!portNames?.needsPort(address)) return null;
    if (address.protocol === 'http') throw httpNeedsDomain();
    try {
      return await portNames.open(address.host, namedPort);
    } catch (error) {
      const isFull = error instanceof RpcError && error.code === NO_TCP_PORT;
      if (!isFull || !this.#freeNamedPort(owner, portNames)) throw error;
      return portNames.open(address.host, namedPort);
    }
  }

  /** The same as {@link #freePort} for ports of names that are nobody's when they are offline. */
  #freeNamedPort({ credential }: EndpointOwner, portNames: PortNames): boolean {
    const kept = portNames.keptNames();
    const online = this.gateway.endpoints.list().filter((each) => portNames.needsPort(each) && !each.isCloud);
    const isNotKept = ({ host }: OnlineEndpoint) => !kept.has(host);
    const newest = newestOfLargestShare(online, ({ owner }) => owner.credential.id, credential.id, isNotKept);
    const reason = 'https port limit reached: its authtoken has more https endpoints than any other';
    newest?.owner.stopListener(newest, reason, NO_TCP_PORT);
    return newest !== null;
  }

  /** Checks again: permission or availability may have changed since the claim. @throws {RpcError} */
  check(owner: EndpointOwner, { address, isWanted }: Claim, pooled: boolean): void {
    authorize(owner, address, isWanted);
    if (!owner.online) throw new RpcError('ERR_NGROK_741', 'the session ended while the endpoint was being bound');
    const [holder] = this.#conflicting(owner, address, pooled);
    if (holder) throw onlineHere(holder, owner, pooled);
  }

  /** Checks that a pool requires the same client certificates: the handshake precedes the choice. @throws {RpcError} */
  checkPool(endpoint: OnlineEndpoint): void {
    const required = authoritiesOf(endpoint);
    if (this.gateway.endpoints.holders(endpoint).every((holder) => authoritiesOf(holder) === required)) return;
    throw new RpcError(
      'ERR_NGROK_301',
      `mutual TLS: all endpoints that share ${endpoint.url} must name the same certificate authorities in the same order`,
    );
  }

  async #claimAnyPort(owner: EndpointOwner, { protocol, host }: WantedAddress): Promise<Claim> {
    const ranges = owner.credential.portsOf(host ?? '');
    const { byPort } = this.gateway.addresses;
    const known = byPort ? urlHostOf(byPort.ip) : host;
    // Devices that joined before the gateway got a domain have ports of its address.
    if (ranges.length === 0 && known !== host && owner.credential.portsOf(known ?? '').length > 0)
      return this.#claimAnyPort(owner, { protocol, internal: false, host: known, port: null });
    if (ranges.length === 0) owner.credential.authorize({ kind: 'any-address' });
    const { port, lease } = await this.#claimPort(owner, null, ranges);
    return { address: { protocol, internal: false, host: host ?? '', port }, lease, isWanted: false };
  }

  /** Frees a port: takes the newest tcp endpoint of the authtoken with the most offline. */
  #freePort({ credential }: EndpointOwner, ranges: readonly PortRange[]): boolean {
    const { endpoints } = this.gateway;
    const newest =
      ranges.length === 0
        ? endpoints.online.newestTcpOfLargestShare(credential.id)
        : newestOfLargestShare(this.#onPorts(ranges), ({ owner }) => owner.credential.id, credential.id);
    const reason = 'tcp port limit reached: its authtoken has more tcp endpoints than any other';
    newest?.owner.stopListener(newest, reason, NO_TCP_PORT);
    return newest !== null;
  }

  /** The endpoints of agents on the ports that an authtoken may have, in order of age. */
  #onPorts(ranges: readonly PortRange[]): OnlineEndpoint[] {
    const { endpoints } = this.gateway;
    const found = new Set<OnlineEndpoint>();
    for (const { first, last } of ranges)
      for (let port = first; port <= last; port += 1)
        for (const each of endpoints.holders({ protocol: 'tcp', internal: false, host: '', port }))
          if (!each.isCloud) found.add(each);
    return [...found].sort((one, other) => endpoints.online.turnOf(one) - endpoints.online.turnOf(other));
  }

  /** @param ranges where any port is; empty: anywhere */
  async #claimPort(
    owner: EndpointOwner,
    wanted: number | null,
    ranges: readonly PortRange[] = [],
  ): Promise<{ port: number; lease: PortLease }> {
    try {
      return await this.#ports.claim(wanted, ranges);
    } catch (error) {
      if (!(error instanceof RpcError) || error.code !== NO_TCP_PORT || !this.#freePort(owner, ranges)) throw error;
      return this.#ports.claim(wanted, ranges);
    }
  }

  get #ports(): TcpPortAllocator {
    const { tcpPorts } = this;
    if (tcpPorts) return tcpPorts;
    throw new RpcError('ERR_NGROK_332', 'tcp endpoints are disabled on this gateway: GATEWAY_TCP_PORTS is off');
  }

  /** The endpoints that must go offline before the address can be bound. */
  #conflicting(owner: EndpointOwner, address: EndpointAddress, pooled: boolean): readonly OnlineEndpoint[] {
    const holders = this.gateway.endpoints
      .holders(address)
      .filter((holder) => !isOtherConnection(holder, owner, address));
    const shares = (holder: OnlineEndpoint) =>
      holder.pooled && holder.protocol === address.protocol && haveOneOwner(holder.owner.credential, owner.credential);
    return pooled && holders.every(shares) ? [] : holders;
  }

  #freeName({ protocol, internal, port }: WantedAddress): string {
    const { endpoints, addresses } = this.gateway;
    const { baseDomain } = addresses;
    for (let attempt = 0; attempt < NAME_ATTEMPTS; attempt++) {
      const host = randomEndpointName(internal ? 'internal' : baseDomain);
      if (endpoints.holders({ protocol, internal, host, port: port ?? 0 }).length === 0) return host;
    }
    throw new RpcError('ERR_NGROK_741', 'no free name found; try again or choose a name');
  }
}

function httpNeedsDomain(): RpcError {
  return new RpcError('ERR_NGROK_332', 'http endpoints need a domain, which this gateway does not have: use https');
}

function authorize({ credential }: EndpointOwner, address: EndpointAddress, isWanted: boolean): void {
  const binding = bindingOf(address);
  if (isWanted) credential.authorizeWanted(binding);
  else credential.authorize(binding);
}

/** Whether an endpoint belongs to another connection of the same agent, which binds each of its endpoints as well. */
function isOtherConnection(holder: OnlineEndpoint, claimant: EndpointOwner, { protocol }: EndpointAddress): boolean {
  const { owner } = holder;
  const isSameAgent = owner.id === claimant.id && owner.credential.id === claimant.credential.id;
  return isSameAgent && owner !== claimant && holder.protocol === protocol;
}

/** Ends the holder's session when it has the same credential and is dead. */
async function takeOver(holder: OnlineEndpoint, claimant: EndpointOwner, pooled: boolean): Promise<void> {
  const session = holder.owner;
  const ours = session.credential.id === claimant.credential.id && session !== claimant;
  if (!ours || (await session.isAlive())) throw onlineHere(holder, claimant, pooled);
  session.end(new EndOfSession('silent', 'agent unresponsive: another session of its authtoken bound the endpoint'));
}

function authoritiesOf({ tls }: OnlineEndpoint): string {
  return tls?.clientAuthorities.join('\n') ?? '';
}

function onlineHere(holder: OnlineEndpoint, claimant: EndpointOwner, pooled: boolean): RpcError {
  if (holder.isCloud) return cloudEndpointAt(holder.url);
  const isOurs = haveOneOwner(holder.owner.credential, claimant.credential);
  return alreadyOnline({ url: holder.url, pooled: holder.pooled, isOurs }, pooled);
}

/** Why an agent cannot bind an endpoint: a cloud endpoint has its address, which no agent's shares. */
export function cloudEndpointAt(url: string): RpcError {
  const advice = 'bind an internal endpoint that it forwards to, choose another name, or delete it';
  return new RpcError('ERR_NGROK_334', `a cloud endpoint serves ${url}: ${advice}`);
}

/**
 * Why an endpoint cannot be bound: `holder` is online at its address, `isOurs`: with an authtoken of the same owner.
 * @param pooled whether the new one may share its address
 */
export function alreadyOnline(
  { url, pooled: isPooled, isOurs }: { url: string; pooled: boolean; isOurs: boolean },
  pooled: boolean,
): RpcError {
  if (!isOurs) {
    return new RpcError(
      'ERR_NGROK_334',
      `the endpoint ${url} is already online with an authtoken of another owner; only authtokens of one bot user can share a URL`,
    );
  }
  if (pooled === isPooled) {
    return new RpcError(
      'ERR_NGROK_334',
      `the endpoint ${url} is already online; only pooled endpoints can share a URL`,
    );
  }
  return pooled
    ? new RpcError(
        'ERR_NGROK_18016',
        `the endpoint ${url} is already online without pooling; enable pooling on it first`,
      )
    : new RpcError('ERR_NGROK_18017', `the endpoint ${url} is already online with pooling; enable pooling here too`);
}
