import { hasErrno, messageOf, OperatorError } from '../errors.ts';
import { explainUnwritable } from '../files/durable-write.ts';

/** The component that failed to start. */
export interface Component {
  /** Its name in messages, for example `the gateway`. */
  what: string;
  /** The variables that set its ports, for messages. */
  portSettings: string;
  /** What to do when it cannot listen at its address, for messages. */
  addressAdvice: string;
  /** Its data folder. */
  folder: string;
}

/**
 * Adds advice for the operator to an error about a port, an address or an unwritable folder.
 *
 * @returns other errors unchanged
 */
export function startError(error: unknown, { what, portSettings, addressAdvice, folder }: Component): unknown {
  if (!isListenError(error)) return explainUnwritable(folder, error);
  const advice = listenAdvice(error, portSettings, addressAdvice);
  if (advice === null) return error;
  return new OperatorError(`${what} cannot start (${messageOf(error)}): ${advice}`, 1, { cause: error });
}

function listenAdvice(error: unknown, portSettings: string, addressAdvice: string): string | null {
  const others = `set ${portSettings} (0: any free port)`;
  if (hasErrno(error, 'EADDRINUSE')) return `stop the other program, or ${others}`;
  if (hasErrno(error, 'EACCES')) {
    const { port = 0 } = error as NodeJS.ErrnoException & { port?: number };
    const allow = `allow it with "sudo sysctl net.ipv4.ip_unprivileged_port_start=${port}"`;
    return process.platform === 'linux' && port > 0 && port < 1024 ? `${allow}, or ${others}` : others;
  }
  if (hasErrno(error, 'EADDRNOTAVAIL')) return addressAdvice;
  return null;
}

/** UDP ports fail in `bind`, TCP ports in `listen`. */
function isListenError(error: unknown): boolean {
  return error instanceof Error && 'syscall' in error && (error.syscall === 'listen' || error.syscall === 'bind');
}
