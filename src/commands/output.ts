import { colouredLines, printableJson, printableMembers } from '../lib/terminal-text.ts';

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
