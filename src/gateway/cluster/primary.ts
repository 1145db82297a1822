import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import type { NodePlace } from '../edge/relays/other-nodes.ts';
import type { Database } from '../store/sql/database.ts';
import { DatabaseAway } from '../store/sql/database-problems.ts';
import type { Nodes } from './nodes.ts';

/** Fact with the id of the primary node. */
const FACT = 'primary_node';
/** Another one takes over sooner. */
const VACANT_MS = 15_000;

/** What only one node does: it is started, and stopped by what that returns. */
type PrimaryJob = () => () => Promise<void>;

/**
 * Chooses the one node that serves the management API and obtains certificates. It stays until it stops, leaves
 * or is silent; then another one commits that it is, and the first has stopped before, by its own clock.
 */
export class Primary {
  readonly #jobs: PrimaryJob[] = [];
  readonly #stops: (() => Promise<void>)[] = [];
  #isServing = false;
  /** While jobs end: none may start again before. */
  #ending: Promise<unknown> | null = null;
  #isStopped = false;
  /** Since when no gateway is the primary one; null: one is. */
  #vacantSince: number | null = null;
  readonly #failures = new Repeats();

  constructor(
    private readonly options: { database: Database; nodes: Nodes; log: Log },
    private readonly now: () => number = () => performance.now(),
  ) {
    const { database, nodes } = options;
    database.onRowApplied((table, id) => {
      if (table !== 'facts' || id !== FACT) return;
      const { holder } = this;
      // It has committed that it is back, which nodes may not say yet.
      if (holder !== null) nodes.rowApplied(holder);
    });
  }

  /** Id of the primary node, which may have left; null: there is none. */
  get holder(): string | null {
    return this.options.database.fact(FACT);
  }

  /** Whether no gateway has been the primary one for longer than another takes to become it. */
  get isVacant(): boolean {
    return this.#vacantSince !== null && this.now() - this.#vacantSince >= VACANT_MS;
  }

  get isSelf(): boolean {
    const { nodes } = this.options;
    return !nodes.isCutOff && !nodes.isDraining(nodes.self) && this.holder === nodes.self;
  }

  /** Address of the primary node; undefined when this node is primary, or no primary node is reachable. */
  get place(): NodePlace | undefined {
    const { nodes } = this.options;
    const id = this.holder;
    return id === null || id === nodes.self ? undefined : nodes.place(id);
  }

  whileSelf(job: PrimaryJob): void {
    this.#jobs.push(job);
    if (this.#isServing) this.#stops.push(job());
  }

  /** Becomes the primary node if there is none, and starts or stops its jobs. Call it every few seconds. */
  async check(): Promise<void> {
    const hasClaimed = await this.#claim().catch((error: unknown) => {
      const times = this.#failures.timesDue('claim');
      if (times !== null && !(error instanceof DatabaseAway))
        this.options.log.warn({ times, reason: messageOf(error) }, 'primary node not chosen');
      return this.#isServing;
    });
    if (this.#isHeld) this.#vacantSince = null;
    else this.#vacantSince ??= this.now();
    if (this.#isStopped || this.#ending || (hasClaimed && this.isSelf) === this.#isServing) return;
    this.#isServing = !this.#isServing;
    this.options.log.info({ node: this.options.nodes.self, primary: this.#isServing }, 'primary node changed');
    if (this.#isServing) for (const job of this.#jobs) this.#stops.push(job());
    else await this.#endJobs();
  }

  /** Ends its jobs for good, also while it becomes the primary node, and makes place for another one. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#endJobs();
    const { database, nodes, log } = this.options;
    const handOver = () => {
      if (this.holder === nodes.self) database.forgetFact(FACT);
    };
    await database.write(handOver).catch((error: unknown) => {
      // Then another one takes over once this one has left, or has been silent for long enough.
      if (!(error instanceof DatabaseAway)) log.warn({ reason: messageOf(error) }, 'primary node not handed over');
    });
  }

  async #endJobs(): Promise<void> {
    this.#ending = Promise.all([this.#ending, ...this.#stops.splice(0).map((stop) => stop())]);
    try {
      await this.#ending;
    } finally {
      this.#ending = null;
    }
  }

  /** Whether the primary node is there, and serves. */
  get #isHeld(): boolean {
    const { nodes } = this.options;
    const { holder } = this;
    if (holder === null) return false;
    return holder === nodes.self ? this.isSelf : nodes.state(holder) === 'serving' && !nodes.isDraining(holder);
  }

  /**
   * Commits that it is the primary node, also when it was before a pause or a restart: its copy may not say yet that another
   * one has taken over. @returns whether it is
   */
  async #claim(): Promise<boolean> {
    const { database, nodes } = this.options;
    const isFree = () => this.holder === nodes.self || !this.#isHeld;
    if (nodes.isCutOff || nodes.isDraining(nodes.self) || !isFree()) return false;
    if (this.#isServing && this.isSelf) return true;
    return await database.write(() => {
      const claims = isFree();
      if (claims) database.setFact(FACT, nodes.self);
      return claims;
    });
  }
}
