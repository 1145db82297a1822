import { messageOf } from '../../lib/errors.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import type { Periods } from '../context/gateway-options.ts';
import { type LostCommits, lostCommits, noteLostCommits } from '../store/lost-commits.ts';
import { type Loss, sinceOf } from '../store/shared/replica-past.ts';
import type { SharedWrites } from '../store/shared/shared-writes.ts';
import { DatabaseAway } from '../store/sql/database-problems.ts';
import type { Store } from '../store/store.ts';
import { type Nodes, PERIODS } from './nodes.ts';

const BY_GATEWAY = { by: 'gateway', from: null };
/** How often the primary node looks whether all have said what they know of a loss, at most. */
const CHECK_MS = 1_000;

/**
 * Says what the shared database has lost, once for all gateways: each of them records what it has found, and the primary node
 * records it in the audit log when all have done so.
 */
export class LossReports {
  readonly #failures = new Repeats();
  /** The loss whose other reports are waited for, the commit that has it, and since when. */
  #waiting: { key: string; version: number; since: number } | null = null;

  readonly #periods: Periods;

  constructor(
    private readonly context: Pick<GatewayContext, 'log'> & {
      options: Pick<GatewayContext['options'], 'periods'>;
      store: Pick<Store, 'database' | 'eventDeliveries' | 'account' | 'now'>;
    },
    private readonly own: {
      shared: Pick<SharedWrites, 'applied' | 'hasUnsaidLoss'>;
      /** Null: this gateway serves the shared database alone. */
      nodes: Nodes | null;
      /** Which events destinations have acknowledged here, by their ids; that may not be recorded. */
      acknowledged: () => Readonly<Record<string, string>>;
    },
  ) {
    this.#periods = context.options.periods ?? PERIODS;
  }

  /** Whether some gateway may still know of lost commits, or sent events, that the others do not know of. */
  get isOpen(): boolean {
    const { shared } = this.own;
    const lost = lostCommits(this.context.store.database);
    return shared.hasUnsaidLoss || (lost !== null && lost.recorded < lost.commits);
  }

  /** Records a loss as this gateway has found it; rejects as {@link Database.write} does. */
  async report(loss: Loss): Promise<void> {
    const { nodes, acknowledged } = this.own;
    const { database, eventDeliveries } = this.context.store;
    await database.write(() => {
      const known = lostCommits(database);
      const isSame = known !== null && isPartOf(loss, known);
      if (known !== null && !isSame) this.#record(known);
      const lost = isSame ? merged(known, loss) : this.#begun(loss);
      noteLostCommits(database, lost);
      eventDeliveries.keepDelivered(loss, acknowledged());
      if (nodes === null) this.#record(lost);
    }, BY_GATEWAY);
  }

  #begun(loss: Loss): LostCommits {
    const { store } = this.context;
    const { shared } = this.own;
    const { after, last, isLeast } = loss;
    const state = { found: store.now(), reported: shared.applied, recorded: 0 };
    return { after, commits: last - after, isLeast, since: sinceOf(loss), ...state };
  }

  /** Looks now and then whether there is something to record, until the returned function is called. */
  watch(): () => Promise<void> {
    let checking: Promise<void> = Promise.resolve();
    const check = () => {
      checking = this.#check().catch((error: unknown) => {
        if (error instanceof DatabaseAway) return;
        const times = this.#failures.timesDue('record');
        if (times !== null) this.context.log.warn({ reason: messageOf(error), times }, 'lost commits not recorded');
      });
    };
    const timer = setInterval(check, Math.min(CHECK_MS, this.#periods.renewMs));
    return () => {
      clearInterval(timer);
      return checking;
    };
  }

  async #check(): Promise<void> {
    const { database } = this.context.store;
    const lost = lostCommits(database);
    if (lost === null || lost.recorded >= lost.commits || !this.#haveAllSaid(lost)) return;
    await database.write(() => {
      const present = lostCommits(database);
      if (present !== null) this.#record(present);
    }, BY_GATEWAY);
  }

  /** A gateway that has applied what others have said of the loss has said itself what it knows. */
  #haveAllSaid({ after, found }: LostCommits): boolean {
    const { nodes, shared } = this.own;
    if (shared.hasUnsaidLoss) return false;
    const key = `${after} ${found}`;
    if (this.#waiting?.key !== key) this.#waiting = { key, version: shared.applied, since: performance.now() };
    const { version, since } = this.#waiting;
    if (performance.now() - since >= this.#periods.silentMs) return true;
    return nodes?.all.every(({ id, applied }) => id === nodes.self || applied >= version) ?? true;
  }

  /** Only inside {@link Database.write}. */
  #record(lost: LostCommits): void {
    const { after, commits, since, recorded } = lost;
    if (recorded >= commits) return;
    const { database, account: id } = this.context.store;
    const change = { lost_commits: commits, lost_since: since };
    database.noteChange({
      table: 'database',
      before: { id, commit: after + commits },
      after: { id, commit: after, ...change },
    });
    noteLostCommits(database, { ...lost, recorded: commits });
  }
}

/** Whether a gateway means a loss that is known. One that does not know where it begins may mean it, too. */
function isPartOf({ after, isLeast }: Loss, known: LostCommits): boolean {
  return after <= known.reported || (isLeast && after < known.after + known.commits);
}

function merged(known: LostCommits, loss: Loss): LostCommits {
  const last = Math.max(known.after + known.commits, loss.last);
  const isBetter = known.isLeast && (!loss.isLeast || loss.after < known.after);
  const after = isBetter ? loss.after : known.after;
  return {
    ...known,
    after,
    commits: last - after,
    isLeast: known.isLeast && loss.isLeast,
    since: (isBetter ? null : known.since) ?? sinceOf(loss) ?? known.since,
  };
}
