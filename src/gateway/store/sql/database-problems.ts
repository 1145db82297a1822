import { hasErrno, messageOf, OperatorError } from '../../../lib/errors.ts';
import { diskAdvice } from '../../../lib/files/durable-write.ts';
import { ownCommand } from '../../../lib/process/own-command.ts';

/** Another program has locked the database: nothing was written; a retry may succeed. */
export class DatabaseBusy extends OperatorError {
  constructor(file: string, cause: unknown) {
    super(`another program holds the database ${file}; try again when it is done`, 1, { cause });
  }
}

/** The disk cannot be written: nothing was changed. */
export class DatabaseUnwritable extends OperatorError {
  /** @param what why, for callers who must not know the file @param advice what to do */
  constructor(
    reason: string,
    readonly what: string,
    readonly advice: string,
    options?: ErrorOptions,
  ) {
    super(`${reason}: ${advice}`, 1, options);
  }

  static because(cause: unknown, file: string): DatabaseUnwritable {
    // The engine only reports these two cases; the advice uses the matching system errors.
    const advice = diskAdvice(Object.assign(new Error(), { code: isFull(cause) ? 'ENOSPC' : 'EROFS' })) ?? '';
    const what = isFull(cause) ? 'disk is full' : 'disk is not writable';
    const reason = `the database ${file} cannot be written (${messageOf(cause)})`;
    return new DatabaseUnwritable(reason, what, advice, { cause });
  }
}

/** A new version of the gateway is tried: nothing was changed, as its data may have to go back. A retry will succeed. */
export class DatabaseHeld extends DatabaseBusy {
  constructor(file: string) {
    super(file, null);
    this.message = 'an update of the gateway is being tried, so nothing was changed; try again in a minute';
  }
}

/** The files of the database are not what was written. They are left as they are. */
export class DatabaseDamaged extends OperatorError {
  constructor(
    file: string,
    readonly problem: string,
    options?: ErrorOptions,
  ) {
    const advice = `restore a backup with "${ownCommand('gateway restore FILE')}", which keeps the damaged files`;
    super(`the database ${file} is damaged (${problem}): ${advice}`, 1, options);
  }
}

/** The shared database cannot be used: if the change took effect, it was the last one. A retry may succeed. */
export class DatabaseAway extends OperatorError {
  /** @param isUntried whether the change was not even sent, or is undone: it did not take effect */
  constructor(
    readonly reason: string,
    cause: unknown,
    readonly isUntried = false,
  ) {
    super(`the shared database does not answer (${reason}); try again when it does`, 1, { cause });
  }
}

/** Whether the disk was full, for the engine or the system. */
export function isFull(error: unknown): boolean {
  return ['SQLITE_FULL', 'SQLITE_IOERR_SHMSIZE', 'ENOSPC', 'EDQUOT'].some((code) => hasErrno(error, code));
}

export function isDamage(error: unknown): boolean {
  const code = error instanceof Error ? String((error as NodeJS.ErrnoException).code) : '';
  return error instanceof DatabaseDamaged || /^SQLITE_(CORRUPT|NOTADB)/.test(code);
}

export function isBusy(error: unknown): boolean {
  return hasErrno(error, 'SQLITE_BUSY') || hasErrno(error, 'SQLITE_BUSY_SNAPSHOT');
}

/** Whether the engine could not write: the disk is full, read-only or failing. */
export function isUnwritable(error: unknown): boolean {
  const code = error instanceof Error ? String((error as NodeJS.ErrnoException).code) : '';
  return code === 'SQLITE_FULL' || /^SQLITE_(IOERR|READONLY|CANTOPEN)/.test(code);
}

export function isConstraint(error: unknown, rule: 'UNIQUE' | 'PRIMARYKEY' | 'FOREIGNKEY'): boolean {
  return error instanceof Error && hasErrno(error, `SQLITE_CONSTRAINT_${rule}`);
}
