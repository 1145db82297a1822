import { randomUUID } from 'node:crypto';
import { OperatorError } from '../../../lib/errors.ts';
import type { ReplicaParts } from '../sql/database.ts';
import { copyShared } from './join-shared.ts';
import { movedAway, Postgres, stillServes, WHOLE_MS } from './postgres.ts';
import { Replica } from './replica.ts';

interface Replacement {
  /** Of the shared database, see {@link Postgres}. */
  url: string;
  /** Has what the shared database will have. */
  content: ReplicaParts;
  /** An empty one, which gets what the shared database has now. */
  present: ReplicaParts;
  /** Called when that is so, before anything changes; not for a shared database that nobody has used yet. */
  keep: () => Promise<void>;
}

/**
 * Gives a shared database the content of another one, in one commit. It stays the same shared database for its gateways.
 *
 * @throws {OperatorError} before anything changes, when a gateway serves it @throws {DatabaseAway}
 */
export async function replaceShared({ url, content, present, keep }: Replacement): Promise<void> {
  const postgres = new Postgres(url);
  try {
    const head = await postgres.prepare();
    const rows = new Replica(content.engine).rows();
    if (head === null) {
      if ((await postgres.fill(rows)) === null) throw changedMeanwhile();
      return;
    }
    if (await postgres.isEnded()) throw movedAway();
    const [node] = await postgres.nodes();
    if (node) throw stillServes(node);
    const replica = new Replica(present.engine);
    const position = await copyShared(replica, postgres, head);
    await keep();
    const difference = replica.difference(rows);
    if (difference.length === 0) return;
    if ((await postgres.commit(position, randomUUID(), difference, WHOLE_MS)) === null) throw changedMeanwhile();
  } finally {
    await postgres.close();
  }
}

function changedMeanwhile(): OperatorError {
  return new OperatorError(
    'the shared database was changed meanwhile: stop all gateways and commands, then run it again',
  );
}
