import { OperatorError } from '../../../lib/errors.ts';
import { DatabaseAway } from '../sql/database-problems.ts';
import type { Node, Postgres } from './postgres.ts';

/** How often a gateway says that it serves. */
const RENEW_MS = 2_000;

/** This gateway as the one that serves a shared database, which only one may do at a time. */
export class ServingNode {
  /** False: the shared database has not answered yet. */
  #hasEntered = false;
  #renewAt = performance.now() + RENEW_MS;

  /** @param onRemoved called when somebody has made place for another gateway */
  constructor(
    private readonly postgres: Postgres,
    private readonly self: Pick<Node, 'id' | 'address' | 'build'>,
    private readonly onRemoved: () => void,
  ) {}

  /**
   * @param applied the change up to which it has everything
   * @throws {OperatorError} when another gateway serves the database
   */
  async enter(applied: number): Promise<void> {
    try {
      const other = await this.postgres.enter({ ...this.self, applied });
      if (other) throw new OperatorError(isServedBy(other));
      this.#hasEntered = true;
    } catch (error) {
      // It was the one that served before, or else it would have no copy. It asks again.
      if (!(error instanceof DatabaseAway)) throw error;
    }
  }

  /** Says every 2 s that it serves. @throws {DatabaseAway} */
  async renewWhenDue(applied: number): Promise<void> {
    if (performance.now() < this.#renewAt) return;
    this.#renewAt = performance.now() + RENEW_MS;
    if (!this.#hasEntered) this.#hasEntered = (await this.postgres.enter({ ...this.self, applied })) === null;
    else this.#hasEntered = await this.postgres.renew(this.self.id, applied);
    if (!this.#hasEntered) this.onRemoved();
  }

  async leave(): Promise<void> {
    if (this.#hasEntered) await this.postgres.leave(this.self.id);
  }
}

function isServedBy({ id, address, silentSeconds }: Node): string {
  const heard = silentSeconds < 60 ? `${Math.round(silentSeconds)} s` : `${Math.round(silentSeconds / 60)} min`;
  return (
    `the gateway ${address}, heard of ${heard} ago, serves this shared database: stop it first; if its machine is lost, ` +
    `run "device-agent gateway nodes remove ${id}"`
  );
}
