import { hasErrno, messageOf, OperatorError } from '../../../lib/errors.ts';
import { diskAdvice } from '../../../lib/files/durable-write.ts';

/** Another program has locked the database: nothing was written; a retry may succeed. */
export class DatabaseBusy extends OperatorError {
  constructor(file: string, cause: unknown) {
    super(`another program holds the database ${file}; try again when it is done`, 1, { cause });
  }
}

/** The disk cannot be written: nothing was changed. */
export class DatabaseUnwritable extends OperatorError {
  readonly isFull: boolean;

  constructor(file: string, cause: unknown) {
    const isFull = hasErrno(cause, 'SQLITE_FULL');
    // The engine only reports these two cases; the advice uses the matching system errors.
    const advice = diskAdvice(Object.assign(new Error(), { code: isFull ? 'ENOSPC' : 'EROFS' }));
    super(`the database ${file} cannot be written (${messageOf(cause)}): ${advice}`, 1, { cause });
    this.isFull = isFull;
  }
}

export function isBusy(error: unknown): boolean {
  return hasErrno(error, 'SQLITE_BUSY') || hasErrno(error, 'SQLITE_BUSY_SNAPSHOT');
}

/** Whether the engine could not write: the disk is full, read-only or failing. */
export function isUnwritable(error: unknown): boolean {
  const code = error instanceof Error ? String((error as NodeJS.ErrnoException).code) : '';
  return code === 'SQLITE_FULL' || /^SQLITE_(IOERR|READONLY|CANTOPEN)/.test(code);
}

/** Whether a change violates a constraint, for example `UNIQUE` or `FOREIGNKEY`. */
export function isConstraint(error: unknown, rule: 'UNIQUE' | 'PRIMARYKEY' | 'FOREIGNKEY'): boolean {
  return error instanceof Error && hasErrno(error, `SQLITE_CONSTRAINT_${rule}`);
}
