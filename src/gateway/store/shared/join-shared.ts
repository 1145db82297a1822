import { setTimeout as delay } from 'node:timers/promises';
import { OperatorError } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log/log.ts';
import type { ReplicaParts } from '../sql/database.ts';
import { DatabaseAway } from '../sql/database-problems.ts';
import { movedAway, Postgres } from './postgres.ts';
import { NOTHING_YET, type Origin, type Position, Replica } from './replica.ts';
import { applied, logOlderState, SharedWrites } from './shared-writes.ts';

interface JoinOptions {
  /** Of the shared database, see {@link Postgres}. */
  url: string;
  /** `in`: content of its own may become that of an empty or ended shared database; `out`: it is about to be moved away. */
  moves: 'in' | 'out' | null;
  /** What the copy was a copy of before it was lost; null: nothing that is known. */
  origin: Origin | null;
  log: Log;
}

/**
 * Makes a gateway's database a copy of a shared one, and what nobody has used yet a shared one with its content.
 * @returns the queue of its writes, which does not follow the changes of others yet
 * @throws {OperatorError} when it has content of its own, is the copy of another one, or is none yet and cannot reach it
 */
export async function joinShared(copy: ReplicaParts, { url, moves, origin, log }: JoinOptions): Promise<SharedWrites> {
  const replica = new Replica(copy.engine);
  const postgres = new Postgres(url);
  try {
    if (origin !== null && replica.position === null && replica.isNew) replica.begin(origin);
    const own = replica.position;
    let away: DatabaseAway | null = null;
    const position = await joined(replica, postgres, { moves, log }).catch((error: unknown) => {
      if (!(error instanceof DatabaseAway)) throw error;
      if (own === null || own.version === NOTHING_YET) throw unreachable(error, own);
      away = error;
      return own;
    });
    return new SharedWrites({ ...copy, replica, postgres, position, away, log });
  } catch (error) {
    await postgres.close();
    throw error;
  }
}

function unreachable({ reason }: DatabaseAway, own: Position | null): OperatorError {
  const need = own === null ? 'the first start needs it' : 'a start that makes a lost or damaged copy again needs it';
  return new OperatorError(`the shared database cannot be reached (${reason}): check GATEWAY_DATABASE_URL; ${need}`);
}

/** A running gateway applies changes twice a second. */
const LOOKS = 3;
const LOOK_MS = 400;

/** Whether a replica has what the shared database has, or has it in a moment. It is left as it is. */
export async function isSameSoon({ engine }: ReplicaParts, postgres: Postgres): Promise<boolean> {
  const replica = new Replica(engine);
  for (let looks = 0; looks < LOOKS; looks += 1) {
    if (replica.difference((await postgres.rowsAfter(0)).rows).length === 0) return true;
    await delay(LOOK_MS);
  }
  return false;
}

async function joined(
  replica: Replica,
  postgres: Postgres,
  { moves, log }: Pick<JoinOptions, 'moves' | 'log'>,
): Promise<Position> {
  const own = replica.position;
  await postgres.prepare();
  const { rows, position } = await postgres.rowsAfter(0);
  if (moves !== 'out' && (await postgres.isEnded())) {
    if (moves !== 'in' || own !== null || !replica.isOfAccount(rows)) throw movedAway();
    await postgres.clear();
    return await joined(replica, postgres, { moves, log });
  }
  const difference = position === null ? [] : replica.difference(rows);
  // The same content: it was moved just now.
  const isMove = moves === 'in' && own === null && difference.length === 0;
  if (!isMove) requireSame(own, position, replica);
  if (position === null) return (await filled(replica, postgres)) ?? (await joined(replica, postgres, { moves, log }));
  if (own?.version === NOTHING_YET)
    log.warn({ commit: position.version }, 'everything copied from the shared database');
  else if (own !== null && (await postgres.relationTo(own)) === 'other') logOlderState(log, position, own);
  // Everything is compared: a new version of this program may know rows and columns that were left out so far.
  await applied(replica, difference, position);
  return position;
}

function requireSame(own: Position | null, head: Position | null, replica: Replica): void {
  if (own === null) {
    if (replica.isNew) return;
    throw new OperatorError(
      head === null
        ? 'this gateway has a database of its own, and the shared one is empty: "device-agent gateway migrate" moves it there'
        : 'this gateway has a database of its own, and the shared one is in use: start it with an empty DATA_DIR',
      2,
    );
  }
  if (head === null)
    throw new OperatorError('the shared database is empty, and was not before: restore it from a backup', 2);
  if (head.cluster === own.cluster) return;
  throw new OperatorError(
    'GATEWAY_DATABASE_URL names another shared database than before: correct it, or start with an empty DATA_DIR',
    2,
  );
}

/** @returns null when another gateway was faster */
async function filled(replica: Replica, postgres: Postgres): Promise<Position | null> {
  const position = await postgres.fill(replica.rows());
  if (position !== null) await applied(replica, [], position);
  return position;
}
