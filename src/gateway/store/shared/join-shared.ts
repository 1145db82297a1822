import { existsSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { OperatorError } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log/log.ts';
import { ownCommand } from '../../../lib/process/own-command.ts';
import type { ReplicaParts } from '../sql/database.ts';
import { DatabaseAway, type DatabaseUnwritable } from '../sql/database-problems.ts';
import { CatchUp, differingParts } from './catch-up.ts';
import { IN_MEMORY, IncomingRows } from './incoming-rows.ts';
import { movedAway, Postgres } from './postgres.ts';
import { ACCOUNT, NOTHING_YET, type Origin, Replica } from './replica.ts';
import type { Position } from './replica-tables.ts';
import { applied, logWhole, SharedWrites } from './shared-writes.ts';

export interface JoinSharedOptions {
  /** Of the shared database, see {@link Postgres}. */
  url: string;
  /** `in`: content of its own may become that of an empty or ended shared database; `out`: it is about to be moved away. */
  moves: 'in' | 'out' | null;
  /** What the copy was a copy of before it was lost; null: nothing that is known. */
  origin: Origin | null;
  /**
   * For the gateway itself: what arrives over a slow link is kept for its next start. Called when the copy cannot be written for
   * a while: the gateway must end, since what it knows gets older. Omitted: this is a command.
   */
  onUnwritable?: ((error: DatabaseUnwritable) => void) | undefined;
  /** When the copy was written before it was opened, in Unix milliseconds. */
  writtenAt: number;
  log: Log;
}

/** Added to the name of a copy: what has arrived for it, and is not applied yet. */
const INCOMING = '.incoming';

/**
 * Makes a gateway's database a copy of a shared one, and what nobody has used yet a shared one with its content.
 * @returns the queue of its writes, which does not follow the changes of others yet
 * @throws {OperatorError} when it has content of its own, is the copy of another one, or is none yet and cannot reach it
 */
export async function joinShared(copy: ReplicaParts, options: JoinSharedOptions): Promise<SharedWrites> {
  const { url, moves, origin, onUnwritable, writtenAt, log } = options;
  const replica = new Replica(copy.engine);
  const postgres = new Postgres(url);
  // Without a name, it is a temporary copy.
  const incoming = new IncomingRows(onUnwritable && existsSync(copy.file) ? copy.file + INCOMING : IN_MEMORY);
  const catchUp = new CatchUp({ replica, file: copy.file, postgres, incoming, log });
  try {
    if (origin !== null && replica.position === null && replica.isNew) replica.begin(origin);
    const own = replica.position;
    let away: DatabaseAway | null = null;
    const position = await joined({ replica, postgres, catchUp }, { moves, log }).catch((error: unknown) => {
      if (!(error instanceof DatabaseAway)) throw error;
      if (own === null || own.version === NOTHING_YET) throw unreachable(error, own);
      away = error;
      return own;
    });
    return new SharedWrites({ ...copy, replica, postgres, catchUp, position, away, onUnwritable, writtenAt, log });
  } catch (error) {
    catchUp.close();
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
    // The gateway may change it meanwhile.
    engine.exec('BEGIN');
    try {
      const { position } = replica;
      if (position !== null && (await differingParts(replica, postgres, position)).length === 0) return true;
    } finally {
      engine.exec('COMMIT');
    }
    await delay(LOOK_MS);
  }
  return false;
}

/** Fetches everything into an empty database. @returns what it has */
export async function copyShared(replica: Replica, postgres: Postgres, head: Position): Promise<Position> {
  const catchUp = new CatchUp({ replica, file: '', postgres, incoming: new IncomingRows(IN_MEMORY), log: null });
  return await caughtUp({ replica, catchUp }, nothingOf(head), null);
}

function nothingOf({ cluster }: Position): Position {
  return { cluster, version: NOTHING_YET, batch: '' };
}

interface Joining {
  replica: Replica;
  postgres: Postgres;
  catchUp: CatchUp;
}

async function joined(joining: Joining, options: Pick<JoinSharedOptions, 'moves' | 'log'>): Promise<Position> {
  const { replica, postgres, catchUp } = joining;
  const { moves } = options;
  const own = replica.position;
  const head = await postgres.prepare();
  if (moves !== 'out' && (await postgres.isEnded())) {
    const account = await postgres.rowAt(ACCOUNT.tbl, ACCOUNT.key);
    if (moves !== 'in' || own !== null || account === null || account.value !== replica.account) throw movedAway();
    await postgres.clear();
    return await joined(joining, options);
  }
  // The same content: it was moved just now.
  const isMove = moves === 'in' && own === null && (head === null || (await catchUp.differing(head)).length === 0);
  if (!isMove) requireSame(own, head, replica);
  if (head === null) return (await filled(replica, postgres)) ?? (await joined(joining, options));
  if (isMove) {
    await applied(replica, [], head);
    return head;
  }
  return await caughtUp(joining, own ?? nothingOf(head), options.log);
}

/** Fetches everything that a copy lacks, and compares it: a new version of this program may know columns that were left out. */
async function caughtUp(
  { replica, catchUp }: Pick<Joining, 'replica' | 'catchUp'>,
  own: Position,
  log: Log | null,
): Promise<Position> {
  const isCopy = replica.position !== null;
  for (let position = own, isVerified = false; ; ) {
    const step = await catchUp.step(position);
    if (step.kind === 'complete') {
      await catchUp.apply(step.position, () => {});
      if (isCopy && log) logWhole(log, step.reason, step.position, { before: position, loss: replica.past.latest });
      isVerified ||= step.reason !== 'behind';
      ({ position } = step);
    } else if (step.kind !== 'more') {
      if (step.kind === 'few') {
        await applied(replica, step.rows, step.position);
        ({ position } = step);
      }
      // What others commit from now on is not waited for: over a long way, there is always something.
      if (isVerified || (await catchUp.verify(position))) return position;
    }
  }
}

function requireSame(own: Position | null, head: Position | null, replica: Replica): void {
  if (own === null) {
    if (replica.isNew) return;
    throw new OperatorError(
      head === null
        ? `this gateway has a database of its own, and the shared one is empty: "${ownCommand('gateway migrate')}" moves it there`
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
