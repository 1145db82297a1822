import { explainUnwritable } from './durable-write.ts';
import { hasErrno, messageOf, OperatorError } from './errors.ts';

/** What could not be started. */
export interface Start {
  /** Such as `the gateway`. */
  what: string;
  /** The variables that name its ports, for a sentence. */
  portSettings: string;
  /** Where it keeps its things. */
  folder: string;
}

/**
 * What the operator can do about a port that cannot be had, or a folder that cannot be written.
 *
 * @param error as starting raised it; others are returned as they are
 */
export function explainStart(error: unknown, { what, portSettings, folder }: Start): unknown {
  if (!isListening(error)) return explainUnwritable(folder, error);
  const inUse = hasErrno(error, 'EADDRINUSE');
  if (!inUse && !hasErrno(error, 'EACCES')) return error;
  const advice = inUse ? 'stop what listens there, or set' : 'this user may not listen there; set';
  return new OperatorError(
    `${what} cannot start (${messageOf(error)}): ${advice} ${portSettings} to other ports (0: any free one)`,
    1,
    { cause: error },
  );
}

/** A UDP port is bound, and no more. */
function isListening(error: unknown): boolean {
  return error instanceof Error && 'syscall' in error && (error.syscall === 'listen' || error.syscall === 'bind');
}
