import { diskAdvice } from '../../lib/durable-write.ts';
import { hasErrno, messageOf, OperatorError } from '../../lib/errors.ts';

/** Another program holds the database: the write was not done, and may be tried again. */
export class DatabaseBusy extends OperatorError {
  constructor(file: string, cause: unknown) {
    super(`another program holds the database ${file}; try again when it is done`, 1, { cause });
  }
}

/** The disk does not take the write: nothing was changed. */
export class DatabaseUnwritable extends OperatorError {
  /** Whether it is room that is missing. */
  readonly isFull: boolean;

  constructor(file: string, cause: unknown) {
    const isFull = hasErrno(cause, 'SQLITE_FULL');
    // The engine tells no more than that; the system's own words would be these.
    const advice = diskAdvice(Object.assign(new Error(), { code: isFull ? 'ENOSPC' : 'EROFS' }));
    super(`the database ${file} cannot be written (${messageOf(cause)}): ${advice}`, 1, { cause });
    this.isFull = isFull;
  }
}

export function isBusy(error: unknown): boolean {
  return hasErrno(error, 'SQLITE_BUSY') || hasErrno(error, 'SQLITE_BUSY_SNAPSHOT');
}

/** Whether the engine could not write: a full disk, one that has become read-only, one that fails. */
export function isUnwritable(error: unknown): boolean {
  const code = error instanceof Error ? String((error as NodeJS.ErrnoException).code) : '';
  return code === 'SQLITE_FULL' || /^SQLITE_(IOERR|READONLY|CANTOPEN)/.test(code);
}

/** Whether the engine refused a change because of the given rule, such as `UNIQUE` or `FOREIGNKEY`. */
export function isConstraint(error: unknown, rule: 'UNIQUE' | 'PRIMARYKEY' | 'FOREIGNKEY'): boolean {
  return error instanceof Error && hasErrno(error, `SQLITE_CONSTRAINT_${rule}`);
}
