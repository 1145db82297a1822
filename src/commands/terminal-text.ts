/** Control characters, and those that change the direction of text or show nothing. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
/** The same, after the colours that commands use: those of others could hide text. */
const COLOUR_OR_UNPRINTABLE = new RegExp(`\u001b\\[(?:[0-2]|3[1-7]|90)m|${UNPRINTABLE.source}`, 'gu');
const SHORT: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' };

/** Prints text for people on standard output, and ends the line. */
export function print(text: string): void {
  process.stdout.write(`${colouredLines(text)}\n`);
}

/** Prints a remark on standard error, and ends the line. */
export function note(text: string): void {
  process.stderr.write(`${colouredLines(text)}\n`);
}

/** JSON without a character that a terminal would carry out or not show; it stays the same JSON. */
export function jsonText(value: unknown, indent = 2): string {
  return JSON.stringify(value, null, indent).replace(UNPRINTABLE, (each) =>
    each === '\n' ? each : each.split('').map(unicodeEscape).join(''),
  );
}

/** Text that others chose, on one line: a terminal must not carry out what it says, nor show what it does not. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, (each) => SHORT[each] ?? escaped(each));
}

/** The same for a text that commands may have coloured. */
export function printableColoured(text: string): string {
  return text.replace(COLOUR_OR_UNPRINTABLE, (each) => (each.length > 2 ? each : (SHORT[each] ?? escaped(each))));
}

/** The same for text of several lines, which stay. */
export function printableLines(text: string): string {
  return text.replaceAll('\r\n', '\n').replace(UNPRINTABLE, (each) => (isLayout(each) ? each : escaped(each)));
}

/** Text of several lines that commands may have coloured. */
export function colouredLines(text: string): string {
  return text.replace(COLOUR_OR_UNPRINTABLE, (each) => (each.length > 2 || isLayout(each) ? each : escaped(each)));
}

const isLayout = (character: string): boolean => character === '\n' || character === '\t';

function escaped(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u{${code.toString(16)}}`;
}

const unicodeEscape = (unit: string): string => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
