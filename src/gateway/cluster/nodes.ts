import { withoutBrackets } from '../../lib/network/ip-address.ts';
import type { Periods } from '../context/gateway-options.ts';
import type { NodePlace } from '../edge/relays/other-nodes.ts';
import type { LiveGateway } from '../endpoints/live-view.ts';
import type { Node } from '../store/shared/postgres.ts';

/**
 * What can be relied on about a node. `serving`: it has what it says. `silent`: it may be dead, or only be cut off from the
 * database. `gone`: it serves nothing any more.
 */
export type NodeState = 'serving' | 'silent' | 'gone';

export const PERIODS: Periods = { renewMs: 2_000, silentMs: 10_000, expiredMs: 3_600_000, marginMs: 60_000 };

/** What operators see of a node. */
export function shownState({ silentSeconds, draining }: Node): LiveGateway['state'] {
  if (silentSeconds * 1000 >= PERIODS.silentMs) return 'silent';
  return draining ? 'draining' : 'serving';
}

export function placeOfNode({ id, address }: Pick<Node, 'id' | 'address'>): NodePlace {
  const colon = address.lastIndexOf(':');
  return { id, host: withoutBrackets(address.slice(0, colon)), port: Number(address.slice(colon + 1)) };
}

/** The gateways that use one shared database, as this one knows them. */
export class Nodes {
  #known: ReadonlyMap<string, Node> = new Map();
  /** Named by rows, but not among the nodes when those were asked for. */
  #gone: ReadonlySet<string> = new Set();
  /** Nodes with rows that were applied since then. */
  readonly #active = new Set<string>();
  /**
   * Silent since before this process knew of them, by when they renewed their entries last. In a copy of the database that was
   * restored elsewhere, these may be the gateways of the original.
   */
  readonly #unheard = new Map<string, number>();
  /** Nodes that could not be reached, and have not answered since then. */
  readonly #failed = new Set<string>();
  /** When this node last renewed its entry, and since when without a pause; in milliseconds of the clock. */
  #renewedAt: number;
  #steadySince: number;
  /** By how much the database's clock is ahead of this one; null: it has not said. */
  #clockAhead: number | null = null;

  /**
   * @param self id of this node
   * @param now milliseconds that only grow
   */
  constructor(
    readonly self: string,
    private readonly periods: Periods = PERIODS,
    private readonly now: () => number = () => performance.now(),
  ) {
    this.#renewedAt = now();
    this.#steadySince = now();
  }

  /**
   * @param askedAt when they were asked for
   * @param named ids of nodes in rows that were applied before
   */
  update(nodes: readonly Node[], askedAt: number, named: Iterable<string>): void {
    const isFirst = this.#known.size === 0;
    for (const { id, renewedAt, silentSeconds } of nodes) {
      if (isFirst && silentSeconds * 1000 >= this.periods.silentMs) this.#unheard.set(id, renewedAt);
      else if (this.#unheard.get(id) !== renewedAt) this.#unheard.delete(id);
    }
    // They have not said anything yet to a database that was put back to an older state.
    const isOlder = nodes.some(({ id, renewedAt }) => renewedAt < (this.#known.get(id)?.renewedAt ?? 0));
    this.#known = new Map(nodes.map((node) => [node.id, node]));
    const hasJumped = this.#followClock(askedAt);
    if (isOlder || hasJumped || askedAt - this.#renewedAt > this.periods.silentMs) this.#steadySince = askedAt;
    this.#renewedAt = askedAt;
    this.#gone = new Set([...named].filter((id) => !this.#known.has(id)));
    this.#active.clear();
    for (const id of this.#failed) if (!this.#known.has(id)) this.#failed.delete(id);
  }

  /** @returns whether the clock by which others are silent was set */
  #followClock(askedAt: number): boolean {
    const renewedAt = this.#known.get(this.self)?.renewedAt;
    if (renewedAt === undefined) return false;
    const before = this.#clockAhead;
    this.#clockAhead = renewedAt - askedAt;
    return before !== null && Math.abs(this.#clockAhead - before) > this.periods.silentMs;
  }

  /** Unix milliseconds that nodes agree on, whatever their clocks say. */
  get sharedTime(): number {
    return this.#clockAhead === null ? Date.now() : this.now() + this.#clockAhead;
  }

  /** A row of the node was applied, so that it may have come back: nodes are asked for less often than rows. */
  rowApplied(id: string): void {
    this.#active.add(id);
  }

  state(id: string): NodeState {
    if (this.#active.has(id)) return 'serving';
    if (this.#gone.has(id)) return 'gone';
    const node = this.#known.get(id);
    if (node === undefined) return 'serving';
    // When the database was away, everybody was silent.
    const silentMs = Math.min(node.silentSeconds * 1000, this.#renewedAt - this.#steadySince);
    if (silentMs >= this.periods.expiredMs) return 'gone';
    return silentMs >= this.periods.silentMs ? 'silent' : 'serving';
  }

  /** Whether a node is being emptied for an upgrade. */
  isDraining(id: string): boolean {
    return this.#known.get(id)?.draining === true;
  }

  failed(id: string): void {
    this.#failed.add(id);
  }

  answered(id: string): void {
    this.#failed.delete(id);
  }

  /** Whether a node could not be reached, or has missed telling that it is there. */
  isUnreachable(id: string): boolean {
    return this.#failed.has(id) || (this.#known.get(id)?.silentSeconds ?? 0) * 1000 > this.periods.silentMs / 2;
  }

  #isHeard(id: string): boolean {
    return this.state(id) === 'serving' && !this.#unheard.has(id);
  }

  /** Where a node can be reached; undefined unless it is serving. */
  place(id: string): NodePlace | undefined {
    const node = this.#known.get(id);
    if (node === undefined || !this.#isHeard(id)) return undefined;
    return placeOfNode(node);
  }

  /** All of them, as they were when they were asked for last. */
  get all(): Node[] {
    return [...this.#known.values()];
  }

  /** Whether another node was heard of a moment before they were asked for. */
  get othersServe(): boolean {
    return this.all.some(({ id, silentSeconds }) => id !== this.self && silentSeconds * 1000 < this.periods.silentMs);
  }

  /** Other nodes that take agents. */
  others(): Node[] {
    const isOpen = ({ id, draining }: Node) => id !== this.self && !draining && this.#isHeard(id);
    return this.all.filter((node) => !node.alone && isOpen(node));
  }

  /** How long ago this node renewed its entry, in milliseconds: so long at least it is silent for the others. */
  get #silentMs(): number {
    return this.now() - this.#renewedAt;
  }

  /** Whether others may take this node for dead. */
  get isCutOff(): boolean {
    return this.#silentMs > this.periods.silentMs / 2;
  }

  /** Whether others may soon take what this node serves. */
  get hasExpired(): boolean {
    return this.#silentMs > this.periods.expiredMs - this.periods.marginMs;
  }
}
