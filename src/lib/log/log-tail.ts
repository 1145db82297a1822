/** A log line for people who look at a page. */
export interface TailLine {
  /** Counts up. */
  readonly number: number;
  readonly time: string;
  readonly level: 'warn' | 'error' | 'fatal';
  readonly msg: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

const MAX_LINES = 100;
/** Longer lines lose their fields. */
const MAX_LENGTH = 4_096;
/** As a number before the readable format, and as a name in JSON. */
const LEVELS: Readonly<Record<string, TailLine['level']>> = {
  40: 'warn',
  50: 'error',
  60: 'fatal',
  warn: 'warn',
  error: 'error',
  fatal: 'fatal',
};

/** Keeps the last warnings and errors of the log in memory, with secrets redacted as in the log. */
export class LogTail {
  #lines: TailLine[] = [];
  #next = 1;

  /** @param text a line of JSON from the logger, of a warning or an error */
  write(text: string): void {
    const { level, time, msg, ...fields } = JSON.parse(text);
    const line: TailLine = {
      number: this.#next++,
      time: String(time),
      level: LEVELS[String(level)] ?? 'error',
      msg: String(msg),
      fields: text.length > MAX_LENGTH ? {} : fields,
    };
    this.#lines = [...this.#lines.slice(1 - MAX_LINES), line];
  }

  /** Oldest first. */
  get lines(): readonly TailLine[] {
    return this.#lines;
  }
}
