import { EventEmitter } from 'node:events';
import type { AgentListener } from '../sessions/agent-listener.ts';
import type { BoundEndpoint } from '../sessions/bound-endpoint.ts';
import type { LabeledTunnel } from '../sessions/labeled-tunnel.ts';
import type { EndpointProtocol, GatewayEndpoint } from './endpoint.ts';
import { carriesLabels, type Labels } from './labels.ts';
import { Rotation } from './rotation.ts';

/** What an endpoint occupies. */
export type EndpointAddress = Pick<GatewayEndpoint, 'protocol' | 'host' | 'port'> & {
  /** Whether it is reached from the policies of other endpoints alone. */
  readonly internal: boolean;
};

type Pools = Map<string, Rotation<BoundEndpoint>>;

/** Protocols whose clients name the host that they want. */
type NamedProtocol = Exclude<EndpointProtocol, 'tcp'>;

/** The protocol whose clients arrive at the same port, told apart by name alone. */
const RIVALS = { http: null, https: 'tls', tls: 'https' } as const;

/**
 * What is online: what the edge routes by. Emits `added` and `removed` when an endpoint goes online or offline.
 */
export class EndpointRegistry extends EventEmitter<{
  added: [endpoint: GatewayEndpoint];
  removed: [endpoint: GatewayEndpoint];
}> {
  readonly #all = new Set<BoundEndpoint>();
  /** Of all of them. */
  readonly #ids = new Set<string>();
  readonly #named: Readonly<Record<NamedProtocol, Pools>> = { http: new Map(), https: new Map(), tls: new Map() };
  /** By port. */
  readonly #tcp: Pools = new Map();
  /** By URL; apart from the others, so that no client reaches one by naming it. */
  readonly #internal: Pools = new Map();
  readonly #labeled = new Rotation<LabeledTunnel>();

  /**
   * The endpoint that serves a public name: the one of that very name, else of the most specific wildcard; the members
   * of a pool take turns. Of `https` and `tls`, whose clients arrive at one port, the more specific name hides the
   * other.
   *
   * @param host lower-case hostname without a port
   */
  lookup(scheme: NamedProtocol, host: string): BoundEndpoint | undefined {
    return nextOf(this.#poolFor(scheme, host));
  }

  /** The one that {@link lookup} would find next; nobody's turn passes. */
  peek(scheme: NamedProtocol, host: string): BoundEndpoint | undefined {
    return this.#poolFor(scheme, host)?.first;
  }

  /** The endpoint that a TCP port belongs to. */
  onTcpPort(port: number): BoundEndpoint | undefined {
    return nextOf(this.#tcp.get(String(port)));
  }

  /** The internal endpoint of a URL such as `https://name.internal:443`. */
  internal(protocol: EndpointProtocol, host: string, port: number): BoundEndpoint | undefined {
    return nextOf(this.#internal.get(internalKey(protocol, host, port)));
  }

  /** A labelled tunnel that carries all of the labels, and perhaps more; those that do take turns. */
  withLabels(labels: Labels): LabeledTunnel | undefined {
    return nextOf(this.#labeled, (tunnel) => carriesLabels(tunnel.labels, labels));
  }

  /** Every endpoint online, in order of binding. */
  list(): BoundEndpoint[] {
    return [...this.#all];
  }

  /** Whether an endpoint online has a public id. */
  hasId(publicId: string): boolean {
    return this.#ids.has(publicId);
  }

  /** Every labelled tunnel online. */
  labeled(): readonly LabeledTunnel[] {
    return this.#labeled.members;
  }

  /** Who has the clients of an address: several when they are pooled, nobody when it is free. */
  holders(address: EndpointAddress): readonly BoundEndpoint[] {
    const [pools, key] = this.#place(address);
    const own = pools.get(key)?.members ?? [];
    const rival = address.internal || address.protocol === 'tcp' ? null : RIVALS[address.protocol];
    return rival === null ? own : [...own, ...(this.#named[rival].get(address.host)?.members ?? [])];
  }

  /** Puts an endpoint online. Whether it may share its address is for the caller to know, by {@link holders}. */
  add(endpoint: BoundEndpoint): void {
    const [pools, key] = this.#place(endpoint);
    const pool = pools.get(key) ?? new Rotation();
    pools.set(key, pool);
    pool.add(endpoint);
    this.#all.add(endpoint);
    this.#ids.add(endpoint.publicId);
    this.emit('added', endpoint);
  }

  /** Takes an endpoint offline; from here on nothing is routed to it. */
  remove(endpoint: BoundEndpoint): void {
    if (!this.#all.delete(endpoint)) return;
    this.#ids.delete(endpoint.publicId);
    const [pools, key] = this.#place(endpoint);
    const pool = pools.get(key);
    pool?.remove(endpoint);
    if (pool?.size === 0) pools.delete(key);
    this.emit('removed', endpoint);
  }

  addLabeled(tunnel: LabeledTunnel): void {
    this.#labeled.add(tunnel);
  }

  removeLabeled(tunnel: LabeledTunnel): void {
    this.#labeled.remove(tunnel);
  }

  #poolFor(scheme: NamedProtocol, host: string): Rotation<BoundEndpoint> | undefined {
    const pools = this.#named[scheme];
    const rival = RIVALS[scheme];
    for (let name = host; name !== ''; name = nextWildcard(name)) {
      const pool = pools.get(name);
      if (pool) return pool;
      if (rival !== null && this.#named[rival].has(name)) return undefined;
    }
    return undefined;
  }

  #place({ protocol, host, port, internal }: EndpointAddress): [pools: Pools, key: string] {
    if (internal) return [this.#internal, internalKey(protocol, host, port)];
    return protocol === 'tcp' ? [this.#tcp, String(port)] : [this.#named[protocol], host];
  }
}

/**
 * Whose turn it is. Those whose agent has not reacted yet to what it was sent last are passed over while there are others: a
 * session that is dead and not found out yet costs its pool one connection, and not every second one.
 */
function nextOf<T extends AgentListener>(
  pool: Rotation<T> | undefined,
  fits: (member: T) => boolean = () => true,
): T | undefined {
  return pool?.next((member) => member.lane.unanswered.size === 0 && fits(member)) ?? pool?.next(fits);
}

/** The most specific wildcard above a name or wildcard; empty when there is none. */
function nextWildcard(name: string): string {
  const dot = name.indexOf('.', name.startsWith('*.') ? 2 : 0);
  return dot === -1 ? '' : `*${name.slice(dot)}`;
}

function internalKey(protocol: EndpointProtocol, host: string, port: number): string {
  return `${protocol}://${host}:${port}`;
}
