import { RpcError } from '../../agent-protocol/rpc.ts';
import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { hostPort } from '../../lib/network/ip-address.ts';
import { isBelowLocalhost } from '../../lib/network/loopback-names.ts';
import { isWithin, type PortRange } from '../../lib/network/port-range.ts';
import { type DomainSettings, hostOfPort, portOfHost } from './domain-names.ts';
import { nameOfPlace, urlOf } from './endpoint-address.ts';
import { LOST_MS, type LostAddresses } from './endpoint-registry.ts';
import type { EndpointAddress } from './online-endpoint.ts';
import { NO_TCP_PORT, type PortLease, type TcpPortAllocator } from './tcp-port-allocator.ts';

/** How often ports in use are recorded again, in milliseconds. */
const TOUCH_MS = 86_400_000;

/** A port of the gateway's address that stands for a name. */
export interface NamedPort {
  readonly name: string;
  readonly port: number;
}

/** Which port each name has, across restarts. */
interface NamesOfPorts {
  portOf(name: string): number | null;
  nameAt(port: number): string | null;
  assign(name: string, port: number): Promise<void>;
  /** The names whose ports nobody else gets, however long they are offline. */
  keptNames(range: PortRange): ReadonlySet<string>;
}

/**
 * The ports at which clients reach endpoints by the gateway's IP address. Names below localhost are in no DNS: each of them has a
 * port instead, which it keeps.
 */
export class PortNames {
  /** Names that are getting their first port: an agent may bind one twice at the same time. */
  readonly #choosing = new Map<string, Promise<void>>();
  /** Ends the leases of ports whose agents are expected back. */
  readonly #held = new Set<() => void>();
  /** Null until the gateway opens ports. */
  #opened: TcpPortAllocator | null = null;

  constructor(
    /** Without brackets, also for IPv6. */
    readonly ip: string,
    private readonly own: {
      names: NamesOfPorts;
      /** Null: GATEWAY_HTTPS_PORTS is off. */
      range: PortRange | null;
      log: Log;
    },
  ) {}

  /** Ports can be opened from now on. @returns stops what records that they are in use */
  openPorts(allocator: TcpPortAllocator): () => void {
    this.#opened = allocator;
    const timer = setInterval(() => allocator.touch(), TOUCH_MS).unref();
    return () => clearInterval(timer);
  }

  get range(): PortRange | null {
    return this.own.range;
  }

  /** Whether clients need a port to reach an address. */
  needsPort({ protocol, internal, host }: Pick<EndpointAddress, 'protocol' | 'internal' | 'host'>): boolean {
    return !internal && protocol !== 'tcp' && isBelowLocalhost(host);
  }

  nameAt(port: number): string | null {
    return this.own.names.nameAt(port);
  }

  keptNames(): ReadonlySet<string> {
    const { names, range } = this.own;
    return range === null ? new Set() : names.keptNames(range);
  }

  portOf(name: string): number | null {
    return this.own.names.portOf(name);
  }

  /** The port for which a name stands since the gateway has a domain, and what is bound there; undefined: another name. */
  placeOf(host: string, domains: DomainSettings): NamedPort | undefined {
    const port = portOfHost(host, domains);
    return port === null ? undefined : { name: this.nameAt(port) ?? host, port };
  }

  /** The name that an agent has bound, for one by which clients know its port since the gateway has a domain. */
  boundAs(host: string, domains: DomainSettings): string {
    return this.placeOf(host, domains)?.name ?? host;
  }

  /** Where clients reach a name besides, once the gateway has a domain; null: nowhere. @param httpsPort shared by all names */
  domainUrlOf(address: EndpointAddress, domains: DomainSettings, httpsPort: number): string | null {
    const port = this.needsPort(address) ? this.portOf(address.host) : null;
    const host = port === null ? null : hostOfPort(port, domains);
    return host === null ? null : urlOf({ ...address, host, port: httpsPort });
  }

  /** Where clients reach a name; null: at no port yet. */
  urlOf(protocol: string, name: string): string | null {
    const port = this.portOf(name);
    return port === null ? null : `${protocol}://${hostPort(this.ip, port)}`;
  }

  /**
   * Opens the port of a name.
   *
   * @param wanted for a name that has none yet; null: any @throws {RpcError} when no port, or not this one, is available
   */
  async open(name: string, wanted: number | null): Promise<{ port: number; lease: PortLease }> {
    try {
      return await this.#open(name, wanted);
    } catch (error) {
      const isFull = error instanceof RpcError && error.code === NO_TCP_PORT;
      if (!isFull || this.#held.size === 0) throw error;
      for (const end of this.#held) end();
      return this.#open(name, wanted);
    }
  }

  /** Leaves a port open whose agent is expected back: its clients wait. @param isExpected whether it still is, some time later */
  hold(lease: PortLease, isExpected = () => false): void {
    const end = () => {
      clearTimeout(timer);
      if (this.#held.delete(end)) lease.end();
    };
    const look = () => {
      if (isExpected()) timer = setTimeout(look, LOST_MS).unref();
      else end();
    };
    let timer = setTimeout(look, LOST_MS).unref();
    this.#held.add(end);
  }

  /** Opens the ports of names whose agents are expected back after a restart of the gateway. */
  async expect(lost: Pick<LostAddresses, 'all' | 'at'>): Promise<void> {
    for (const { place } of lost.all()) {
      const name = nameOfPlace(place);
      if (!place.startsWith('tls ') || this.#opened === null || this.portOf(name) === null) continue;
      // An agent that comes back gets an error in the same case.
      await this.open(name, null).then(
        ({ lease }) => this.hold(lease, () => lost.at(place) !== undefined),
        () => {},
      );
    }
  }

  async #open(name: string, wanted: number | null): Promise<{ port: number; lease: PortLease }> {
    const { names } = this.own;
    const allocator = this.#allocator;
    await this.#choosing.get(name)?.catch(() => {});
    const known = names.portOf(name);
    const { range } = this.own;
    // The operator may have changed the range.
    if (known !== null && range !== null && isWithin(known, [range])) return allocator.claim(known, []);
    const chosen = this.#choose(allocator, name, wanted);
    const settled = chosen.then(() => {});
    this.#choosing.set(name, settled);
    settled.catch(() => {}).finally(() => this.#choosing.delete(name));
    return chosen;
  }

  async #choose(allocator: TcpPortAllocator, name: string, wanted: number | null) {
    const { names, log } = this.own;
    const { port, lease } = await allocator.claim(wanted, []);
    const before = wanted === null ? null : names.nameAt(port);
    if (before !== null) {
      lease.end();
      throw new RpcError('ERR_NGROK_334', `port ${port} belongs to another endpoint; leave out the port`);
    }
    try {
      await names.assign(name, port);
    } catch (error) {
      // The endpoint works; only after a restart, it may get another port.
      log.warn({ name, port, reason: messageOf(error) }, 'port of a name not recorded');
    }
    return { port, lease };
  }

  get #allocator(): TcpPortAllocator {
    if (this.#opened) return this.#opened;
    throw new RpcError(
      'ERR_NGROK_332',
      'https and tls endpoints are disabled on this gateway: it has no domain, and GATEWAY_HTTPS_PORTS is off',
    );
  }
}
