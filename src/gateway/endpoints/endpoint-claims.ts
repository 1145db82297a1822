import { RpcError } from '../../agent-protocol/rpc-error.ts';
import type { ListenerOwner } from '../sessions/agent-listener.ts';
import { type BoundEndpoint, bindingOf } from '../sessions/bound-endpoint.ts';
import { type AddressSettings, urlOf, type WantedAddress } from './endpoint-address.ts';
import { randomEndpointName } from './endpoint-name.ts';
import type { EndpointAddress, EndpointRegistry } from './endpoints.ts';
import type { PortLease, TcpPorts } from './tcp-ports.ts';

export interface EndpointClaimsOptions extends AddressSettings {
  endpoints: EndpointRegistry;
  /** Null: there are no public tcp endpoints. */
  tcpPorts: TcpPorts | null;
}

/** An address that was free, or could be shared; the port that goes with it is open. */
export interface Claim {
  readonly address: EndpointAddress;
  readonly lease: PortLease | null;
}

const NAME_ATTEMPTS = 10;

/** Finds addresses for endpoints: chooses them where agents leave that open, and takes them over from dead sessions. */
export class EndpointClaims {
  readonly #options: EndpointClaimsOptions;

  constructor(options: EndpointClaimsOptions) {
    this.#options = options;
  }

  /**
   * Makes an address ready to be bound; {@link check} it again before that is done.
   *
   * @throws {RpcError} when the session may not have it, or others do
   */
  async claim(owner: ListenerOwner, wanted: WantedAddress, pooled: boolean): Promise<Claim> {
    const { protocol, internal, host, port } = wanted;
    if (protocol === 'tcp' && !internal && port === null) return this.#claimAnyPort(owner, wanted);
    const address = { protocol, internal, host: host ?? this.#freeName(wanted), port: port ?? 0 };
    owner.credential.authorize(bindingOf(address));
    for (const holder of this.#inTheWay(address, pooled)) await takeOver(holder, owner, pooled);
    const lease = protocol === 'tcp' && !internal ? await this.#openPort(address.port) : null;
    return { address, lease };
  }

  /**
   * Whether an address can be bound now: while it was being claimed, the right to it may have gone, or its being free.
   *
   * @throws {RpcError} when it cannot
   */
  check(owner: ListenerOwner, address: EndpointAddress, pooled: boolean): void {
    owner.credential.authorize(bindingOf(address));
    if (!owner.online) throw new RpcError('ERR_NGROK_741', 'the session ended while the endpoint was being bound');
    const [holder] = this.#inTheWay(address, pooled);
    if (holder) throw alreadyOnline(holder, pooled);
  }

  /**
   * Whether an endpoint demands the certificates that all do with which it shares its address: a client has done its
   * handshake before it is known whose turn it is.
   *
   * @throws {RpcError} when it does not
   */
  checkPool(endpoint: BoundEndpoint): void {
    const demanded = authoritiesOf(endpoint);
    if (this.#options.endpoints.holders(endpoint).every((holder) => authoritiesOf(holder) === demanded)) return;
    throw new RpcError(
      'ERR_NGROK_301',
      `mutual TLS: the endpoints that share ${urlOf(endpoint)} have to name the same authorities, in the same order`,
    );
  }

  async #claimAnyPort(owner: ListenerOwner, { protocol, host }: WantedAddress): Promise<Claim> {
    owner.credential.authorize({ kind: 'any-address' });
    const { port, lease } = await this.#ports.claim(null);
    return { address: { protocol, internal: false, host: host ?? '', port }, lease };
  }

  async #openPort(port: number): Promise<PortLease> {
    return (await this.#ports.claim(port)).lease;
  }

  get #ports(): TcpPorts {
    const { tcpPorts } = this.#options;
    if (tcpPorts) return tcpPorts;
    throw new RpcError('ERR_NGROK_332', 'this gateway has no ports for tcp endpoints: GATEWAY_TCP_PORTS is off');
  }

  /** Those that have to go before the address can be bound. */
  #inTheWay(address: EndpointAddress, pooled: boolean): readonly BoundEndpoint[] {
    const holders = this.#options.endpoints.holders(address);
    const shares = (holder: BoundEndpoint) => holder.pooled && holder.protocol === address.protocol;
    return pooled && holders.every(shares) ? [] : holders;
  }

  #freeName({ protocol, internal, port }: WantedAddress): string {
    const { endpoints, baseDomain } = this.#options;
    for (let attempt = 0; attempt < NAME_ATTEMPTS; attempt++) {
      const host = randomEndpointName(internal ? 'internal' : baseDomain);
      if (endpoints.holders({ protocol, internal, host, port: port ?? 0 }).length === 0) return host;
    }
    throw new RpcError('ERR_NGROK_741', 'no free name was found; ask for one');
  }
}

/** Ends the holder's session when it is a dead one of the same credential. */
async function takeOver(holder: BoundEndpoint, claimant: ListenerOwner, pooled: boolean): Promise<void> {
  const session = holder.owner;
  const ours = session.credential.id === claimant.credential.id && session !== claimant;
  if (!ours || (await session.isAlive())) throw alreadyOnline(holder, pooled);
  session.end(new Error('the agent does not answer, and its endpoint was bound anew'));
}

function authoritiesOf({ tls }: BoundEndpoint): string {
  return tls?.clientAuthorities.join('\n') ?? '';
}

function alreadyOnline(holder: BoundEndpoint, pooled: boolean): RpcError {
  const url = urlOf(holder);
  if (pooled === holder.pooled) {
    return new RpcError(
      'ERR_NGROK_334',
      `the endpoint ${url} is already online; only pooled endpoints can share a URL`,
    );
  }
  return pooled
    ? new RpcError('ERR_NGROK_18016', `the endpoint ${url} is already online, without pooling`)
    : new RpcError('ERR_NGROK_18017', `the endpoint ${url} is already online, with pooling: enable it here, too`);
}
