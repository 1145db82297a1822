import { constants, openSync, write, writeSync } from 'node:fs';
import { isatty } from 'node:tty';
import type { DestinationStream } from 'pino';
import { hasErrno } from './errors.ts';

/** Bytes that may wait to be written; lines that come on top of them are lost. */
const MAX_WAITING = 1024 * 1024;

/** Milliseconds until a reader without room is tried again. */
const RETRY_MS = 100;

/** Milliseconds that the end of a process waits for a reader without room, and how often it looks. */
const FLUSH_MS = 400;
const LOOK_MS = 10;

const NOTHING = Buffer.alloc(0);
const NEVER = new Int32Array(new SharedArrayBuffer(4));

/**
 * Opens a terminal anew. Writing to the one that Node has set up waits as long as nobody reads it (Ctrl-S is enough), and
 * the end of the process with it; pipes and sockets Node sets up so that they say that they are full.
 *
 * @returns what is to be written to: `fd` itself when it is no terminal, or cannot be opened
 */
export function openWithoutWaiting(fd: number): number {
  if (!isatty(fd)) return fd;
  try {
    return openSync(`/proc/self/fd/${fd}`, constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  } catch {
    return fd; // another user's, perhaps: then it waits
  }
}

/**
 * Where the lines of a log go. Whatever becomes of them, the process goes on: they wait, within bounds, while the disk
 * is full or nobody reads, and each new line tries again. Pino's own output would end the process or hang in it.
 */
export class LogOutput implements DestinationStream {
  #lines = '';
  /** Lines that were tried before, from the first byte on that is not written. */
  #rest: Buffer = NOTHING;
  /** Of all that waits, with what is being written. */
  #bytes = 0;
  #busy = false;

  /** @param fd an open file, such as 1 for standard output */
  constructor(private readonly fd: number) {}

  write(line: string): void {
    const bytes = Buffer.byteLength(line);
    if (this.#bytes + bytes > MAX_WAITING) return;
    this.#lines += line;
    this.#bytes += bytes;
    if (this.#busy) return;
    this.#busy = true;
    // Not at once: what is said last before an exit must not be with a thread by then, but here for flushSync().
    setImmediate(() => this.#writeOn());
  }

  /** Writes what waits, as far as that is possible in a moment; for a process that is about to end. */
  flushSync(): void {
    const end = performance.now() + FLUSH_MS;
    for (let piece = this.#take(); piece.length > 0; piece = this.#take()) {
      try {
        this.#written(piece, writeSync(this.fd, piece));
      } catch (error) {
        // There is no other place to say it, and the next line tries again.
        this.#written(piece, 0);
        if (!hasErrno(error, 'EAGAIN') || performance.now() > end) return;
        Atomics.wait(NEVER, 0, 0, LOOK_MS);
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
