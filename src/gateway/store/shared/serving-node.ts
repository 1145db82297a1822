import { OperatorError } from '../../../lib/errors.ts';
import { DatabaseAway } from '../sql/database-problems.ts';
import type { Node, Postgres } from './postgres.ts';

/** What a gateway is told about those that serve its shared database. */
export interface ServingEvents {
  /**
   * This gateway must end. @param reason why it cannot serve, as the shared database says after this one has started without
   * it; null: somebody has made place for another gateway
   */
  onRemoved(reason: string | null): void;
  /** Left out: it serves alone. @param nodes all that serve it, as of `askedAt`, in milliseconds of `performance.now()` */
  onNodes?(nodes: readonly Node[], askedAt: number): void;
}

/** This gateway as one that serves a shared database, alone or with others. */
export class ServingNode {
  /** False: the shared database has not answered yet. */
  #hasEntered = false;
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

  /** @param applied the change up to which it has everything @throws {OperatorError} when another gateway is in its way */
  async enter(applied: number): Promise<void> {
    try {
      await this.#enter(applied);
      await this.#showNodes(performance.now());
    } catch (error) {
      // It served before, or else it would have no copy. It asks again.
      if (!(error instanceof DatabaseAway)) throw error;
    }
  }

  /** Says now and then that it serves, and at once which changes it has applied. @throws {DatabaseAway} */
  async renewWhenDue(applied: number): Promise<void> {
    const hasNews = !this.self.alone && applied !== this.#told;
    if (performance.now() < this.#renewAt && !hasNews) return;
    const askedAt = performance.now();
    this.#renewAt = askedAt + this.renewMs;
    if (this.#hasEntered) {
      this.#hasEntered = await this.postgres.renew(this.self, applied);
      if (!this.#hasEntered) return this.events.onRemoved(null);
    } else {
      try {
        await this.#enter(applied);
      } catch (error) {
        if (!(error instanceof OperatorError)) throw error;
        return this.events.onRemoved(error.message);
      }
    }
    this.#told = applied;
    await this.#showNodes(askedAt);
  }

  /** The database was put back to an older state, which may not know this gateway: it enters again. */
  enterAgain(): void {
    this.#hasEntered = false;
    this.#renewAt = 0;
  }

  async leave(): Promise<void> {
    if (this.#hasEntered) await this.postgres.leave(this.self.id);
  }

  /** @throws {OperatorError} when another gateway is in its way, or the database has ended */
  async #enter(applied: number): Promise<void> {
    const other = await this.postgres.enter({ ...this.self, applied });
    if (other) throw new OperatorError(this.self.alone || other.alone ? isServedBy(other) : hasAddressOf(other));
    this.#hasEntered = true;
  }

  async #showNodes(askedAt: number): Promise<void> {
    if (this.events.onNodes) this.events.onNodes(await this.postgres.nodes(), askedAt);
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
    `"device-agent gateway nodes remove ${id}"; to serve it together, set GATEWAY_NODE_ADDRESS for both`
  );
}
