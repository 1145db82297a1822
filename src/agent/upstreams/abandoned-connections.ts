import { isLoopbackHost, parseAddress } from '../../lib/network/ip-address.ts';
import type { TcpUpstream } from '../../lib/network/upstream-address.ts';
import { ownConnections } from '../../lib/process/own-connections.ts';
import type { AgentContext } from '../context/agent-context.ts';
import type { UpstreamHealth, UpstreamHealths } from './upstream-health.ts';

/** Milliseconds in which an upstream ends its side of a connection that its client has ended. */
const PATIENCE_MS = 10_000;
/** The same while there are so many that few are left for others: the session has 512, and is about to be replaced. */
const CROWDED_MS = 900;
const MANY = 256;

/**
 * Finds upstreams that keep connections open after clients have left. Where the SDK (1.7.0) connects to them itself, each
 * takes one of its session's 512 places until the upstream ends its side, and a descriptor even after the session. The SDK
 * tells nothing of them, but Linux lists them.
 */
export class AbandonedConnections {
  /** When a half-closed connection was first seen, by inode. */
  #seen = new Map<string, number>();
  /** Those of earlier sessions, which take no place in this one. */
  #earlier = new Set<string>();
  #ofSession = 0;

  constructor(
    private readonly context: Pick<AgentContext, 'log'>,
    private readonly healths: UpstreamHealths,
    private readonly onHangs: (upstream: UpstreamHealth) => void,
    private readonly now = () => performance.now(),
  ) {}

  /** Why a session has few places left; null while it has enough. */
  get problem(): string | null {
    if (this.#ofSession < MANY) return null;
    return `${this.#ofSession} connections that clients have left are still open at upstreams; few are left for others`;
  }

  /** Connections that clients have left and upstreams keep open, as of the last look. */
  get count(): number {
    return this.healths.values().reduce((sum, { abandoned }) => sum + abandoned, 0);
  }

  /** A session has started, with all its places free. Its tunnels are bound only now: nothing has to be reopened. */
  sessionStarted(): void {
    this.#look(() => {});
    this.#earlier = new Set(this.#seen.keys());
    this.#ofSession = 0;
  }

  look(): void {
    this.#look(this.onHangs);
  }

  /** Whether the SDK has a connection to an upstream that is alive, as of the first call; Linux only. */
  lookForClients(): (health: UpstreamHealth) => boolean {
    let open: ReadonlySet<string> | null = null;
    return ({ isDirect, upstream }) => {
      if (!isDirect || upstream.kind !== 'tcp') return false;
      open ??= this.#listOpen();
      return open.has(keyOf(addressOf(upstream), upstream.port));
    };
  }

  #listOpen(): ReadonlySet<string> {
    if (process.platform !== 'linux') return new Set();
    const ports = portsOf(this.#direct().keys());
    try {
      const open = ownConnections('established', (port) => ports.has(port));
      return new Set(
        open.filter(({ unansweredMs }) => unansweredMs === 0).map(({ address, port }) => keyOf(address, port)),
      );
    } catch (err) {
      this.context.log.debug({ err }, 'connections could not be counted');
      return new Set();
    }
  }

  /** The upstreams that the SDK connects to, with their keys. */
  #direct(): Map<UpstreamHealth, string> {
    const direct = new Map<UpstreamHealth, string>();
    for (const health of this.healths.values()) {
      const { upstream, isDirect } = health;
      if (isDirect && upstream.kind === 'tcp') direct.set(health, keyOf(addressOf(upstream), upstream.port));
    }
    return direct;
  }

  #look(onHangs: (upstream: UpstreamHealth) => void): void {
    if (process.platform !== 'linux') return;
    const direct = this.#direct();
    this.#ofSession = 0;
    if (direct.size === 0) return;
    try {
      this.#count(direct, onHangs);
    } catch (err) {
      this.context.log.debug({ err }, 'connections could not be counted');
    }
  }

  #count(direct: ReadonlyMap<UpstreamHealth, string>, onHangs: (upstream: UpstreamHealth) => void): void {
    const keys = new Set(direct.values());
    const ports = portsOf(direct.keys());
    const open = ownConnections('halfClosed', (port) => ports.has(port));
    const seen = new Map<string, number>();
    const ages = new Map<string, number[]>();
    for (const { inode, address, port } of open) {
      const key = keyOf(address, port);
      if (!keys.has(key)) continue;
      const since = this.#seen.get(inode) ?? this.now();
      seen.set(inode, since);
      const age = this.now() - since;
      const others = ages.get(key) ?? [];
      others.push(age);
      ages.set(key, others);
      if (age >= CROWDED_MS && !this.#earlier.has(inode)) this.#ofSession += 1;
    }
    this.#seen = seen;
    for (const [health, key] of direct) if (health.keepsOpen(abandonedOf(ages.get(key) ?? []))) onHangs(health);
  }
}

/** @param ages of half-closed connections to one upstream, in milliseconds */
function abandonedOf(ages: readonly number[]): number {
  const olderThan = (ms: number) => ages.filter((age) => age >= ms).length;
  return olderThan(CROWDED_MS) >= MANY ? olderThan(CROWDED_MS) : olderThan(PATIENCE_MS);
}

function portsOf(healths: Iterable<UpstreamHealth>): Set<number> {
  return new Set([...healths].map(({ upstream }) => (upstream.kind === 'tcp' ? upstream.port : 0)));
}

/** Loopback is one, however it is written: the SDK tries its addresses in turn. */
function keyOf(address: string, port: number): string {
  return `${isLoopbackHost(address) ? 'localhost' : address} ${port}`;
}

function addressOf({ host }: TcpUpstream): string {
  return parseAddress(host)?.toString() ?? host;
}
