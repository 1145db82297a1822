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
 * What the operator can do about a port or an address that cannot be had, or a folder that cannot be written.
 *
 * @param error as starting raised it; others are returned as they are
 */
export function explainStart(error: unknown, { what, portSettings, folder }: Start): unknown {
  if (!isListening(error)) return explainUnwritable(folder, error);
  const advice = listenAdvice(error, portSettings);
  if (advice === null) return error;
  return new OperatorError(`${what} cannot start (${messageOf(error)}): ${advice}`, 1, { cause: error });
}

function listenAdvice(error: unknown, portSettings: string): string | null {
  const others = `set ${portSettings} (0: any free port)`;
  if (hasErrno(error, 'EADDRINUSE')) return `stop the other program, or ${others}`;
  if (hasErrno(error, 'EACCES')) return `permission denied; ${others}`;
  if (hasErrno(error, 'EADDRNOTAVAIL')) return 'set GATEWAY_HOST and GATEWAY_DNS_HOST to addresses of this machine';
  return null;
}

/** A UDP port is bound, and no more. */
function isListening(error: unknown): boolean {
  return error instanceof Error && 'syscall' in error && (error.syscall === 'listen' || error.syscall === 'bind');
}
