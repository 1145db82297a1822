import { constants, openSync, write, writeSync } from 'node:fs';
import { isatty } from 'node:tty';
import pino, { type DestinationStream, type Logger } from 'pino';
import { hasErrno } from '../errors.ts';
import { printableJson } from '../json-text.ts';
import { isSecretField, MASK } from '../masking/secret-names.ts';
import { wantsColor } from '../terminal-text.ts';
import type { LogTail } from './log-tail.ts';

/** Each line has fields and a constant message. */
export type Log = Logger;

export const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];
export type LogFormat = 'json' | 'pretty';

/** Of fields within fields; nobody nests deeper. */
const MAX_DEPTH = 4;
/** Of an API key or an authtoken, which `api_key` and `credential` name. */
const ID = /^(?:ak|cr)_[0-9A-Za-z]{1,27}$/;

/**
 * Creates the process's log: JSON lines, or readable lines for a terminal.
 *
 * @param destination default: standard output
 * @param tail also receives the warnings and errors
 */
export async function createLog(
  level: LogLevel,
  format: LogFormat,
  destination: DestinationStream = standardOutput(),
  tail: LogTail | null = null,
): Promise<Log> {
  const options = {
    level,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { log: maskedFields },
    serializers: { err: (error: Error) => maskedFields(pino.stdSerializers.err(error)) },
  };
  if (format === 'json') {
    const lines = { write: (line: string) => destination.write(printableJson(line)) };
    return pino(
      { ...options, formatters: { ...options.formatters, level: (label: string) => ({ level: label }) } },
      withTail(lines, tail),
    );
  }
  const { default: pretty } = await import('pino-pretty');
  const prettify = pretty.prettyFactory({
    colorize: wantsColor(process.stdout, process.env),
    translateTime: 'SYS:HH:MM:ss',
    ignore: 'pid,hostname',
  });
  const lines = { write: (line: string) => destination.write(prettify(withVisibleEscapes(line))) };
  return pino(options, withTail(lines, tail));
}

function withTail(lines: DestinationStream, tail: LogTail | null): DestinationStream {
  if (tail === null) return lines;
  return pino.multistream([
    { level: 'trace', stream: lines },
    { level: 'warn', stream: tail },
  ]);
}

/** Masks fields that stand for secrets, also within other fields. */
function maskedFields(fields: object): Record<string, unknown> {
  return withoutSecrets(fields) as Record<string, unknown>;
}

function withoutSecrets(value: unknown, depth = 0): unknown {
  if (typeof value !== 'object' || value === null || depth === MAX_DEPTH) return value;
  if (Array.isArray(value)) return value.map((each) => withoutSecrets(each, depth + 1));
  // Errors have their serializer; dates and the like say how they are written.
  if (depth > 0 && (value instanceof Error || 'toJSON' in value)) return value;
  const shown: Record<string, unknown> = {};
  for (const [name, each] of Object.entries(value)) {
    const isShown = each === undefined || each === null || !isSecretField(name) || ID.test(String(each));
    shown[name] = isShown ? withoutSecrets(each, depth + 1) : MASK;
  }
  return shown;
}

/**
 * The same JSON, whose escapes the readable format shows rather than decodes, except for line ends and tabs: clients choose
 * parts of names and messages.
 */
function withVisibleEscapes(line: string): string {
  return printableJson(line).replace(/\\(?:\\|[bfr]|u[0-9a-f]{4})/g, (found) => {
    return found === '\\\\' ? found : `\\${found}`;
  });
}

let output: LogOutput | null = null;

function standardOutput(): LogOutput {
  if (!output) {
    const created = new LogOutput(openNonBlocking(1));
    process.on('exit', () => created.flushSync());
    output = created;
  }
  return output;
}

/** Whether a log of this process writes to this file descriptor. */
export function logsTo(fd: number): boolean {
  return output?.fd === fd;
}

/** Maximum bytes in the buffer; further lines are dropped. */
const MAX_WAITING = 1024 * 1024;

/** Milliseconds between the writes of many lines: each write takes as long as writing dozens of lines does. */
const GATHER_MS = 50;

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
  #writtenAt = Number.NEGATIVE_INFINITY;

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
    if (performance.now() - this.#writtenAt > GATHER_MS) setImmediate(() => this.#writeOn());
    else setTimeout(() => this.#writeOn(), GATHER_MS);
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
    this.#writtenAt = performance.now();
    write(this.fd, piece, (error, written) => {
      this.#written(piece, error ? 0 : written);
      if (!error && this.#rest.length > 0) this.#writeOn();
      else if (!error && this.#lines !== '') setTimeout(() => this.#writeOn(), GATHER_MS);
      else if (!error) this.#busy = false;
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
