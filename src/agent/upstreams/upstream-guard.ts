import { promises as dns, type LookupAddress } from 'node:dns';
import { networkInterfaces } from 'node:os';
import { messageOf } from '../../lib/errors.ts';
import { embeddedIpv4, isLoopbackHost } from '../../lib/network/ip-address.ts';
import { addressesOf } from '../../lib/network/loopback-names.ts';
import { displayUpstream, isNamed, type TcpUpstream, type Upstream } from '../../lib/network/upstream-address.ts';
import { withDeadline } from '../../lib/time/deadline.ts';
import type { UpstreamRules } from '../../settings/upstream-rules.ts';
import { AgentError } from '../errors/agent-error.ts';

/** Names what this process listens on: completes `port 4040 is …`. */
export interface OwnPorts {
  get(port: number): string | undefined;
}

export type Lookup = (name: string) => Promise<LookupAddress[]>;

const LOOKUP_MS = 5_000;

/** Refuses upstreams that AGENT_ALLOW_UPSTREAMS does not allow. */
export class UpstreamGuard {
  readonly #lookups = new Map<string, Promise<LookupAddress[]>>();

  readonly #ownPorts: OwnPorts[] = [];

  constructor(
    private readonly rules: UpstreamRules,
    private readonly lookup: Lookup = addressesOf,
    private readonly localhostResolver = new LocalhostResolver(),
  ) {}

  /** The addresses of `localhost`, which {@link checkLiteral} allows or not; never rejects. */
  localhost(): Promise<Localhost> {
    return this.localhostResolver.resolve();
  }

  /**
   * Refuses loopback ports that this process listens on. The API would take clients of a tunnel for local callers, and a
   * tunnel to the gateway would forward to itself.
   */
  protectOwnPorts(ports: OwnPorts): void {
    this.#ownPorts.push(ports);
  }

  /**
   * Checks an upstream as it resolves now.
   *
   * @throws {AgentError} 400 when it is not allowed or its name does not resolve
   */
  async check(upstream: Upstream): Promise<void> {
    if (upstream.kind === 'unix') return this.checkSocket(upstream.path);
    if (isNamed(upstream)) await this.resolve(upstream);
    else this.checkLiteral(upstream);
  }

  /**
   * Checks the upstream of a new tunnel as it resolves now. Every connection is checked again.
   *
   * @throws {AgentError} 400 when it is not allowed
   * @returns why its name does not resolve, as that of a device that sleeps; else null
   */
  async admit(upstream: Upstream): Promise<AgentError | null> {
    try {
      await this.check(upstream);
      return null;
    } catch (error) {
      if (error instanceof AgentError && error.code === 'ERR_AGENT_UPSTREAM_UNKNOWN') return error;
      throw error;
    }
  }

  /**
   * The addresses of a named upstream, which are all allowed.
   *
   * @throws {AgentError} 400 when one is not allowed or the name does not resolve
   */
  async resolve(upstream: TcpUpstream): Promise<LookupAddress[]> {
    const { host, port } = upstream;
    const addresses = await this.#resolveShared(host);
    for (const { address } of addresses) this.#refuseOwnPort(address, port);
    const refused = addresses.find(({ address }) => !this.rules.allowsAddress(address, port, host));
    if (refused) throw this.#refusal(upstream, ` (${host} is ${refused.address})`);
    return addresses;
  }

  /** @throws {AgentError} 400 when an upstream that is an address or localhost is not allowed */
  checkLiteral(upstream: TcpUpstream): void {
    const { host, port } = upstream;
    this.#refuseOwnPort(host, port);
    const allowed =
      host === 'localhost' ? this.rules.allowsAddress('127.0.0.1', port, host) : this.rules.allowsAddress(host, port);
    if (!allowed) throw this.#refusal(upstream);
  }

  allowsPort(port: number): boolean {
    try {
      this.checkLiteral({ kind: 'tcp', host: 'localhost', port, scheme: null });
      return true;
    } catch {
      return false;
    }
  }

  /** @throws {AgentError} 400 when a unix socket is not allowed */
  async checkSocket(path: string): Promise<void> {
    const allowed = await this.rules.allowsSocket(path).catch((error: unknown) => {
      throw unreadableSocket(path, error);
    });
    if (!allowed) throw this.#refusal({ kind: 'unix', path });
  }

  /**
   * The real path that a connection to a unix socket may use now.
   *
   * @throws {AgentError} 400 when it is not allowed or does not exist
   */
  async resolveSocket(path: string): Promise<string> {
    const real = await this.rules.resolveSocket(path).catch((error: unknown) => {
      throw unreadableSocket(path, error);
    });
    if (real === null) throw this.#refusal({ kind: 'unix', path });
    return real;
  }

  #refuseOwnPort(host: string, port: number): void {
    if (!isLoopbackHost(embeddedIpv4(host) ?? host)) return;
    const what = this.#ownPorts.map((ports) => ports.get(port)).find((known) => known !== undefined);
    if (what === undefined) return;
    const problem = `port ${port} is ${what}`;
    throw new AgentError('ERR_AGENT_UPSTREAM_NOT_ALLOWED', problem, { details: { forwards_to: problem } });
  }

  /** Concurrent connections share one look-up, because the system has few threads for them. */
  async #resolveShared(name: string): Promise<LookupAddress[]> {
    let pending = this.#lookups.get(name);
    if (!pending) {
      pending = this.lookup(name).finally(() => this.#lookups.delete(name));
      this.#lookups.set(name, pending);
    }
    try {
      const addresses = await withDeadline(pending, `resolving ${name}`, LOOKUP_MS);
      if (addresses.length > 0) return addresses;
    } catch (error) {
      throw unknownHost(name, error);
    }
    throw unknownHost(name);
  }

  #refusal(upstream: Upstream, resolved = ''): AgentError {
    const shown = displayUpstream(upstream);
    return new AgentError(
      'ERR_AGENT_UPSTREAM_NOT_ALLOWED',
      `upstream not allowed: ${shown}${resolved}; AGENT_ALLOW_UPSTREAMS allows ${this.rules.text}, ` +
        'and link-local, metadata and multicast addresses are never allowed',
      { details: { forwards_to: `${shown}${resolved} is not allowed` } },
    );
  }
}

function unreadableSocket(path: string, cause: unknown): AgentError {
  return new AgentError('ERR_AGENT_UPSTREAM_NOT_ALLOWED', `cannot check unix:${path}: ${messageOf(cause)}`, {
    cause,
  });
}

function unknownHost(name: string, cause?: unknown): AgentError {
  return new AgentError('ERR_AGENT_UPSTREAM_UNKNOWN', `cannot resolve the upstream name ${name}`, {
    details: { forwards_to: `cannot resolve ${name}${cause === undefined ? '' : `: ${messageOf(cause)}`}` },
    cause,
  });
}

export interface Localhost {
  /** In the order in which to try them: first those that the system's resolver knows. */
  addresses: LookupAddress[];
  /** Whether the system's resolver gives the same, so that other programs connect to the same upstreams. */
  isComplete: boolean;
}

type Resolve = (name: string) => Promise<LookupAddress[]>;

const V4: LookupAddress = { address: '127.0.0.1', family: 4 };
const V6: LookupAddress = { address: '::1', family: 6 };
/** The file of hosts seldom changes, and a look-up costs more than the connection. */
const FRESH_MS = 60_000;
/** Where the file of hosts has no localhost, a name server is asked, which need not answer. */
const LOCALHOST_MS = 500;

/**
 * Resolves `localhost` to all loopback addresses of this machine. The system's resolver leaves out what its file of hosts
 * does not have: often ::1, where Vite, Rails and Hugo listen, and in some images both.
 */
export class LocalhostResolver {
  #resolved: Promise<Localhost> | null = null;
  #resolvedAt = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly system: Resolve = (name) => dns.lookup(name, { all: true, verbatim: true }),
    private readonly hasIpv6: () => boolean = hasIpv6Loopback,
  ) {}

  /** Never rejects. */
  resolve(): Promise<Localhost> {
    if (this.#resolved === null || performance.now() - this.#resolvedAt >= FRESH_MS) {
      this.#resolvedAt = performance.now();
      this.#resolved = this.#resolve();
    }
    return this.#resolved;
  }

  async #resolve(): Promise<Localhost> {
    const asked = withDeadline(this.system('localhost'), 'resolving localhost', LOCALHOST_MS);
    const found = await asked.catch((): LookupAddress[] => []);
    const known = found.filter(({ address }) => isLoopbackHost(address));
    const missing = [V4, ...(this.hasIpv6() ? [V6] : [])].filter(({ address }) => !known.some(isAt(address)));
    return { addresses: [...known, ...missing], isComplete: missing.length === 0 && known.length === found.length };
  }
}

function isAt(address: string): (one: { address: string }) => boolean {
  return (one) => one.address === address;
}

function hasIpv6Loopback(): boolean {
  return Object.values(networkInterfaces()).some((found) => found?.some(isAt(V6.address)));
}
