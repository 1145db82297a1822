import pino, { type DestinationStream, type Logger } from 'pino';
import { isSecretField, MASK } from '../masking/secret-names.ts';
import { printableJson } from '../terminal-text.ts';
import { LogOutput, openNonBlocking } from './log-output.ts';
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
    formatters: { log: maskedFields },
    serializers: { err: (error: Error) => maskedFields(pino.stdSerializers.err(error)) },
  };
  if (format === 'json') {
    const write = (line: string) => {
      tail?.add(line);
      destination.write(printableJson(line));
    };
    return pino(
      { ...options, formatters: { ...options.formatters, level: (label: string) => ({ level: label }) } },
      { write },
    );
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
