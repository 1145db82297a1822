/** Control characters, and those that change the direction of text or show nothing; not the one in many emoji. */
export const UNPRINTABLE = /(?!\ufe0f)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Default_Ignorable_Code_Point}]/gu;
/** The same, after the colours of commands and QR codes: other ones could hide text. */
const COLOUR_OR_UNPRINTABLE = new RegExp(`\u001b\\[(?:0|3[1236]|4[07]|90)m|${UNPRINTABLE.source}`, 'gu');
const SHORT: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' };

/** Text that others chose, on one line: a terminal must not carry out what it says, nor show what it does not. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, (each) => SHORT[each] ?? escaped(each));
}

/** The same for all texts in a value, also in names of members. */
export function printableMembers<T>(value: T): T {
  if (typeof value === 'string') return printable(value) as T;
  if (Array.isArray(value)) return value.map(printableMembers) as T;
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, each]) => [printable(name), printableMembers(each)]),
  ) as T;
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

/** The text of an error. Its further lines are indented: none looks like one that a command prints. */
export function printableError(text: string): string {
  return printableLines(text).replace(/\n(?! {2})/g, '\n  ');
}

const isLayout = (character: string): boolean => character === '\n' || character === '\t';

function escaped(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u{${code.toString(16)}}`;
}

/** Formats a duration for people, such as `45 s`, `12 min`, `3 h` or `5 d`. */
export function durationText(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 120) return `${whole} s`;
  if (whole < 7_200) return `${Math.floor(whole / 60)} min`;
  return whole < 172_800 ? `${Math.floor(whole / 3_600)} h` : `${Math.floor(whole / 86_400)} d`;
}

/** Whether to use colours: on a terminal, unless NO_COLOR is set (no-color.org). */
export function wantsColor(stream: { isTTY?: boolean }, env: NodeJS.ProcessEnv): boolean {
  return stream.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb';
}
