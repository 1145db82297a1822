/** Control characters, and those that change the direction of text or show nothing. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
const SHORT: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' };

/** Text that others chose, on one line: a terminal must not carry out what it says, nor show what it does not. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, (each) => SHORT[each] ?? escaped(each));
}

/** The same for text of several lines, which stay. */
export function printableLines(text: string): string {
  return text
    .replaceAll('\r\n', '\n')
    .replace(UNPRINTABLE, (each) => (each === '\n' || each === '\t' ? each : escaped(each)));
}

function escaped(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u{${code.toString(16)}}`;
}
