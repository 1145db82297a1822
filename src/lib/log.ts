import pino, { type DestinationStream, type Logger } from 'pino';
import { LogOutput, openWithoutWaiting } from './log-output.ts';

/** A log line is an object plus a constant message; see {@link createLog}. */
export type Log = Logger;

export const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];
export type LogFormat = 'json' | 'pretty';

/** Members that never appear in a log line, wherever a caller puts them. */
const SECRET_MEMBERS = ['authtoken', 'token', 'apiToken', 'password', 'secret', 'authorization', 'privateKey', 'key'];

/**
 * Makes the process's log: JSON lines, or readable ones for a terminal, on standard output.
 *
 * @param destination where the lines go; standard output when left out
 */
export async function createLog(
  level: LogLevel,
  format: LogFormat,
  destination: DestinationStream = standardOutput(),
): Promise<Log> {
  const options = {
    level,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
    redact: SECRET_MEMBERS.flatMap((name) => [name, `*.${name}`, `*.*.${name}`]),
  };
  if (format === 'json') {
    const lines = { write: (line: string) => destination.write(withoutControls(line)) };
    return pino({ ...options, formatters: { level: (label: string) => ({ level: label }) } }, lines);
  }
  const { default: pretty } = await import('pino-pretty');
  const inWords = pretty.prettyFactory({
    colorize: process.stdout.isTTY === true,
    translateTime: 'SYS:HH:MM:ss',
    ignore: 'pid,hostname',
  });
  return pino(options, { write: (line) => destination.write(inWords(withVisibleEscapes(line))) });
}

/**
 * Escapes what JSON leaves as it is and terminals obey: strangers choose what stands in names and messages.
 *
 * @param line JSON
 */
function withoutControls(line: string): string {
  return line.replace(/[\x7f-\x9f]/g, (control) => `\\u00${control.charCodeAt(0).toString(16)}`);
}

/** The same for what turns escapes into what they stand for, as the readable lines do: but for ends of lines and tabs. */
function withVisibleEscapes(line: string): string {
  return withoutControls(line).replace(/\\(?:\\|[bfr]|u00[0189][0-9a-f]|u007f)/g, (found) => {
    return found === '\\\\' ? found : `\\${found}`;
  });
}

let output: LogOutput | null = null;

function standardOutput(): LogOutput {
  if (!output) {
    const created = new LogOutput(openWithoutWaiting(1));
    process.on('exit', () => created.flushSync());
    output = created;
  }
  return output;
}
