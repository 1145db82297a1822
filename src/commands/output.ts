import { stripVTControlCharacters } from 'node:util';
import { printableJson } from '../lib/json-text.ts';
import { colouredLines, printableColoured, printableMembers } from '../lib/terminal-text.ts';

// Commands write nowhere else: gateways, devices, clients and upstreams choose parts of what they print.

/** Prints a result: as JSON, or as `render` shows it, which gets all texts on one line and safe for a terminal. */
export function show<T>(result: T, { json }: { json?: boolean | undefined }, render: (result: T) => string): void {
  print(json ? jsonText(result) : render(printableMembers(result)));
}

/** Prints text for people on standard output, and ends the line. */
export function print(text: string): void {
  process.stdout.write(`${colouredLines(text)}\n`);
}

/** Prints text in place of what the terminal shows. */
export function redraw(text: string): void {
  process.stdout.write('\u001b[H\u001b[2J');
  print(text);
}

/** Resolves when standard output has taken everything. */
export function printed(): Promise<void> {
  return new Promise((resolve) => process.stdout.write('', () => resolve()));
}

/** Prints a remark on standard error, and ends the line. */
export function note(text: string): void {
  process.stderr.write(`${colouredLines(text)}\n`);
}

/** Asks for a line of input. */
export function prompt(question: string): void {
  process.stderr.write(question);
}

/** JSON without a character that a terminal would carry out or not show; it stays the same JSON. */
export function jsonText(value: unknown, indent = 2): string {
  return printableJson(JSON.stringify(value, null, indent));
}

export interface Column {
  title: string;
  /** Columns are cut to this width, not below, when the terminal is too narrow; omitted: never cut. */
  minWidth?: number;
}

const GAP = '  ';

/**
 * Renders rows below their titles, as wide as the terminal at most: the widest columns that may be cut lose their ends.
 *
 * @param width columns of the terminal; infinite where nobody reads it on one
 */
export function renderTable(columns: readonly Column[], values: readonly string[][], width: number): string {
  // A value must not end its line.
  const rows = values.map((row) => row.map(printableColoured));
  const head = columns.map(({ title }) => title);
  const widths = shrink(
    columns,
    columns.map(({ title }, at) => Math.max(title.length, ...rows.map((row) => lengthOf(row[at] ?? '')))),
    width,
  );
  const line = (cells: readonly string[]) => cells.map((cell, at) => padded(cell, widths[at] ?? 0)).join(GAP);
  return [head, ...rows].map((cells) => line(cells).trimEnd()).join('\n');
}

/** Renders rows below their titles, without a limit of the width. */
export function table(head: readonly string[], rows: readonly string[][]): string {
  return renderTable(
    head.map((title) => ({ title })),
    rows,
    Number.POSITIVE_INFINITY,
  );
}

/** The width of the terminal that a stream writes to; infinite for files and pipes. */
export function widthOf(stream: { isTTY?: boolean; columns?: number }): number {
  return stream.isTTY ? (stream.columns ?? Number.POSITIVE_INFINITY) : Number.POSITIVE_INFINITY;
}

function shrink(columns: readonly Column[], widths: number[], width: number): number[] {
  const total = () => widths.reduce((sum, each) => sum + each, GAP.length * (widths.length - 1));
  const spare = (at: number) => (widths[at] ?? 0) - (columns[at]?.minWidth ?? Number.POSITIVE_INFINITY);
  while (total() > width) {
    const candidates = widths.map((_, at) => at).filter((at) => spare(at) > 0);
    const widest = candidates.sort((a, b) => (widths[b] ?? 0) - (widths[a] ?? 0))[0];
    if (widest === undefined) break;
    widths[widest] = (widths[widest] ?? 0) - 1;
  }
  return widths;
}

function padded(cell: string, width: number): string {
  const length = lengthOf(cell);
  if (length <= width) return cell + ' '.repeat(width - length);
  // Only cells without colours are cut.
  return `${cell.slice(0, Math.max(0, width - 1))}…`;
}

function lengthOf(cell: string): number {
  return stripVTControlCharacters(cell).length;
}
