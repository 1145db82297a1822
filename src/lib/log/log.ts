import pino, { type DestinationStream, type Logger } from 'pino';
import { LogOutput, openNonBlocking } from './log-output.ts';
import type { LogTail } from './log-tail.ts';

/** Each line has fields and a constant message. */
export type Log = Logger;

export const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];
export type LogFormat = 'json' | 'pretty';

/** Fields that are redacted, also within other fields. */
const SECRET_MEMBERS = ['authtoken', 'token', 'apiToken', 'password', 'secret', 'authorization', 'privateKey', 'key'];

/**
 * Creates the process's log: JSON lines, or readable lines for a terminal.
 *
 * @param destination default: standard output
 * @param tail also receives every line
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
    redact: SECRET_MEMBERS.flatMap((name) => [name, `*.${name}`, `*.*.${name}`]),
  };
  if (format === 'json') {
    const write = (line: string) => {
      tail?.add(line);
      destination.write(withoutControls(line));
    };
    return pino({ ...options, formatters: { level: (label: string) => ({ level: label }) } }, { write });
  }
  const { default: pretty } = await import('pino-pretty');
  const prettify = pretty.prettyFactory({
    colorize: process.stdout.isTTY === true,
    translateTime: 'SYS:HH:MM:ss',
    ignore: 'pid,hostname',
  });
  const write = (line: string) => {
    tail?.add(line);
    destination.write(prettify(withVisibleEscapes(line)));
  };
  return pino(options, { write });
}

/**
 * Escapes control characters that JSON allows but terminals interpret: clients choose parts of names and messages.
 *
 * @param line JSON
 */
function withoutControls(line: string): string {
  return line.replace(/[\x7f-\x9f]/g, (control) => `\\u00${control.charCodeAt(0).toString(16)}`);
}

/** The same for the readable format, which decodes escapes. Line ends and tabs stay. */
function withVisibleEscapes(line: string): string {
  return withoutControls(line).replace(/\\(?:\\|[bfr]|u00[0189][0-9a-f]|u007f)/g, (found) => {
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
