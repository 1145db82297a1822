import { OperatorError } from '../../../lib/errors.ts';
import { ownCommand } from '../../../lib/process/own-command.ts';
import { DatabaseAway } from '../sql/database-problems.ts';
import type { Node, Postgres } from './postgres.ts';
import type { Loss } from './replica-past.ts';

/** What a gateway is told about those that serve its shared database. */
export interface ServingEvents {
  /**
   * This gateway must end. @param reason why it cannot serve, as the shared database says after this one has started without
   * it; null: somebody has made place for another gateway
   */
  onRemoved(reason: string | null): void;
  /** Left out: it serves alone. @param nodes all that serve it, as of `askedAt`, in milliseconds of `performance.now()` */
  onNodes?(nodes: readonly Node[], askedAt: number): void;
  /** Commits were lost, and the copy has what is left. Others wait until this is done; when it fails, it is called again. */
  onLoss?(loss: Loss): Promise<void>;
}

/** This gateway as one that serves a shared database, alone or with others. */
export class ServingNode {
  /** False: the shared database has not answered yet, or was put back to an older state. */
  #hasEntered = false;
  /** Whether it has entered before. */
  #hasServed = false;
  /** Its entry was missing a moment ago. */
  #isMissing = false;
  /** The gateway in its way, as this process has seen it last. */
  #rival: Node | null = null;
  #renewAt: number;
  /** What the others know that it has applied. */
  #told = 0;

  constructor(
    private readonly postgres: Postgres,
    private readonly self: Pick<Node, 'id' | 'address' | 'alone' | 'build'>,
    private readonly events: ServingEvents,
    private readonly renewMs: number,
  ) {
    this.#renewAt = performance.now() + renewMs;
  }

  /**
   * Enters at the start.
   * @param applied the change up to which it has everything @throws {OperatorError} when another gateway is in its way
   */
  async enter(applied: number): Promise<void> {
    try {
      const other = await this.#enter(applied);
      if (other) throw new OperatorError(this.#isInTheWay(other));
      const askedAt = performance.now();
      this.events.onNodes?.(await this.postgres.nodes(), askedAt);
    } catch (error) {
      // It served before, or else it would have no copy. It asks again.
      if (!(error instanceof DatabaseAway)) throw error;
    }
  }

  /**
   * Says now and then that it serves, and at once which changes it has applied.
   * @param isDue whether it says so in any case @throws {DatabaseAway} also while another gateway may be in its way
   */
  async renewWhenDue(applied: number, isDue: boolean): Promise<void> {
    const hasNews = !this.self.alone && applied !== this.#told;
    if (performance.now() < this.#renewAt && !hasNews && !isDue) return;
    const askedAt = performance.now();
    this.#renewAt = askedAt + this.renewMs;
    const nodes = this.#hasEntered ? await this.#renew(applied) : await this.#enterLate(applied);
    if (nodes === null) return;
    this.#told = applied;
    this.events.onNodes?.(nodes, askedAt);
  }

  /** The database was put back to an older state, which may not know this gateway: it enters again. */
  enterAgain(): void {
    this.#hasEntered = false;
    this.#renewAt = 0;
  }

  /** Tells the others of lost commits. */
  async say(loss: Loss): Promise<void> {
    await this.events.onLoss?.(loss);
  }

  async leave(): Promise<void> {
    if (this.#hasEntered) await this.postgres.leave(this.self.id);
  }

  /** @returns all that serve; null: this one does not */
  async #renew(applied: number): Promise<Node[] | null> {
    const nodes = await this.postgres.renew(this.self, applied);
    // Put back to an older state a moment ago, the database may not know it; that is noticed before this is asked again.
    if (nodes === null && this.#isMissing) this.events.onRemoved(null);
    if (nodes === null) this.#renewAt = 0;
    this.#isMissing = nodes === null;
    return nodes;
  }

  /**
   * Enters after the start. Another gateway has taken its place when that says again that it serves: until then, its entry may
   * be an old one.
   * @returns as {@link #renew}
   */
  async #enterLate(applied: number): Promise<Node[] | null> {
    try {
      const other = await this.#enter(applied);
      if (other === null) return await this.postgres.nodes();
      const before = this.#rival;
      this.#rival = other;
      const reason = this.#isInTheWay(other);
      if (before?.id !== other.id || before.renewedAt === other.renewedAt)
        throw new DatabaseAway(reason, new Error(reason), true);
      this.events.onRemoved(reason);
    } catch (error) {
      if (error instanceof DatabaseAway || !(error instanceof OperatorError)) throw error;
      this.events.onRemoved(error.message);
    }
    return null;
  }

  /** @returns another gateway that is in its way @throws {OperatorError} when the database has ended */
  async #enter(applied: number): Promise<Node | null> {
    const other = await this.postgres.enter({ ...this.self, applied }, this.#hasServed);
    if (other) return other;
    this.#hasEntered = true;
    this.#hasServed = true;
    this.#isMissing = false;
    this.#rival = null;
    return null;
  }

  #isInTheWay(other: Node): string {
    return this.self.alone || other.alone ? isServedBy(other) : hasAddressOf(other);
  }
}

function hasAddressOf({ id, address }: Node): string {
  return (
    `the gateway ${id} has the address ${address} already: set GATEWAY_NODE_ADDRESS to this gateway's own; if DATA_DIR is a new ` +
    'one on the same machine, start again in 10 s'
  );
}

function isServedBy({ id, address, silentSeconds }: Node): string {
  const heard = silentSeconds < 60 ? `${Math.round(silentSeconds)} s` : `${Math.round(silentSeconds / 60)} min`;
  return (
    `the gateway ${address}, heard of ${heard} ago, serves this shared database: stop it first; if its machine is lost, run ` +
    `"${ownCommand(`gateway nodes remove ${id}`)}"; to serve it together, set GATEWAY_NODE_ADDRESS for both`
  );
}
