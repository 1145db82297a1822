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

export interface TextColumn {
  title: string;
  /** Columns are cut to this width, not below, when the terminal is too narrow; omitted: never cut. */
  minWidth?: number;
  /** When it is left out because cutting is not enough: the lowest one first; omitted: never. */
  goes?: number;
  /** What the table is for: when the terminal is too narrow for it and what stays, each value gets a line of its own. */
  isMain?: boolean;
}

const GAP = '  ';

/**
 * Renders rows below their titles, as wide as the terminal where possible: the widest columns that may be cut lose their
 * ends, then columns go, then the main one gets lines of its own.
 *
 * @param width columns of the terminal; infinite where nobody reads it on one
 */
export function renderTable(columns: readonly TextColumn[], values: readonly string[][], width: number): string {
  // A value must not end its line.
  const rows = [columns.map(({ title }) => title), ...values.map((row) => row.map(printableColoured))];
  const all = columns.map((column, at) => ({
    ...column,
    at,
    width: Math.max(...rows.map((row) => lengthOf(row[at] ?? ''))),
  }));
  const main = all.find(({ isMain }) => isMain);
  const table = fitting(all, width);
  if (main === undefined || isWithin(table, width)) return rows.map((row) => lineOf(table, row)).join('\n');
  const rest = fitting(
    all.filter((column) => column !== main),
    width,
  );
  return rows.map((row) => `${lineOf(rest, row)}\n${GAP}${row[main.at] ?? ''}`).join('\n');
}

type PlacedColumn = TextColumn & { at: number; width: number };

function lineOf(columns: readonly PlacedColumn[], row: readonly string[]): string {
  return columns
    .map(({ at, width }) => padded(row[at] ?? '', width))
    .join(GAP)
    .trimEnd();
}

function isWithin(columns: readonly PlacedColumn[], width: number): boolean {
  return columns.reduce((sum, column) => sum + column.width, GAP.length * (columns.length - 1)) <= width;
}

/** The columns that stay, narrowed to the width if that is possible. */
function fitting(all: readonly PlacedColumn[], width: number): PlacedColumn[] {
  let columns = narrowed(all, width);
  while (!isWithin(columns, width)) {
    const [first] = columns.filter(({ goes }) => goes !== undefined).sort((a, b) => (a.goes ?? 0) - (b.goes ?? 0));
    if (first === undefined) break;
    const left = columns.map(({ at }) => at).filter((at) => at !== first.at);
    columns = narrowed(
      all.filter(({ at }) => left.includes(at)),
      width,
    );
  }
  return columns;
}

function narrowed(all: readonly PlacedColumn[], width: number): PlacedColumn[] {
  const columns = all.map((column) => ({ ...column }));
  while (!isWithin(columns, width)) {
    const [widest] = columns
      .filter((column) => column.width > (column.minWidth ?? Number.POSITIVE_INFINITY))
      .sort((a, b) => b.width - a.width);
    if (widest === undefined) break;
    widest.width -= 1;
  }
  return columns;
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

function padded(cell: string, width: number): string {
  const length = lengthOf(cell);
  if (length <= width) return cell + ' '.repeat(width - length);
  // Only cells without colours are cut.
  return `${cell.slice(0, Math.max(0, width - 1))}…`;
}

function lengthOf(cell: string): number {
  return stripVTControlCharacters(cell).length;
}
