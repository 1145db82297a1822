import { constants, openSync, write, writeSync } from 'node:fs';
import { isatty } from 'node:tty';
import type { DestinationStream } from 'pino';
import { hasErrno } from '../errors.ts';

/** Maximum bytes in the buffer; further lines are dropped. */
const MAX_WAITING = 1024 * 1024;

/** Milliseconds between writes to a full pipe. */
const RETRY_MS = 100;

/** Milliseconds that a flush waits for a full pipe, and between its attempts. */
const FLUSH_MS = 400;
const FLUSH_RETRY_MS = 10;

const NOTHING = Buffer.alloc(0);
const NEVER = new Int32Array(new SharedArrayBuffer(4));

/**
 * Reopens a terminal in non-blocking mode. Node's own descriptor blocks the process while output is paused, for example
 * with Ctrl-S. Pipes and sockets are already non-blocking.
 *
 * @returns `fd` itself when it is not a terminal or cannot be reopened
 */
export function openNonBlocking(fd: number): number {
  if (!isatty(fd)) return fd;
  try {
    return openSync(`/proc/self/fd/${fd}`, constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  } catch {
    return fd; // possibly another user's terminal: writes block
  }
}

/**
 * Writes log lines without ever blocking or ending the process. While the disk or the pipe is full, lines wait in a
 * bounded buffer, and each new line triggers another attempt. Pino's own output would throw or hang.
 */
export class LogOutput implements DestinationStream {
  #lines = '';
  /** The unwritten part of earlier lines. */
  #rest: Buffer = NOTHING;
  /** Bytes in the buffer, including those being written. */
  #bytes = 0;
  #busy = false;

  /** @param fd file descriptor, for example 1 for standard output */
  constructor(readonly fd: number) {}

  write(line: string): void {
    const bytes = Buffer.byteLength(line);
    if (this.#bytes + bytes > MAX_WAITING) return;
    this.#lines += line;
    this.#bytes += bytes;
    if (this.#busy) return;
    this.#busy = true;
    // Deferred, so that flushSync() still has the last lines before an exit.
    setImmediate(() => this.#writeOn());
  }

  /** Writes the buffer synchronously before the process exits, as far as possible within FLUSH_MS. */
  flushSync(): void {
    const end = performance.now() + FLUSH_MS;
    for (let piece = this.#take(); piece.length > 0; piece = this.#take()) {
      try {
        this.#written(piece, writeSync(this.fd, piece));
      } catch (error) {
        // There is no other place to report it, and the next line retries.
        this.#written(piece, 0);
        if (!hasErrno(error, 'EAGAIN') || performance.now() > end) return;
        Atomics.wait(NEVER, 0, 0, FLUSH_RETRY_MS);
      }
    }
  }

  #writeOn(): void {
    const piece = this.#take();
    this.#busy = piece.length > 0;
    if (!this.#busy) return;
    write(this.fd, piece, (error, written) => {
      this.#written(piece, error ? 0 : written);
      if (!error) this.#writeOn();
      else if (hasErrno(error, 'EAGAIN')) setTimeout(() => this.#writeOn(), RETRY_MS).unref();
      else this.#busy = false;
    });
  }

  #take(): Buffer {
    const piece = this.#rest.length > 0 ? this.#rest : Buffer.from(this.#lines);
    if (this.#rest.length === 0) this.#lines = '';
    this.#rest = NOTHING;
    return piece;
  }

  #written(piece: Buffer, bytes: number): void {
    this.#bytes -= bytes;
    if (bytes < piece.length) this.#rest = Buffer.concat([piece.subarray(bytes), this.#rest]);
  }
}
