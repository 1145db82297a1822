import { expect, it } from 'vitest';
import { jsonText, renderTable } from '../../src/commands/output.ts';
import { colouredLines, printable, printableLines } from '../../src/lib/terminal-text.ts';

const HOSTILE = 'a\u001b]0;owned\u0007\u001b[2J\u009b8mb\u202e\u200bc\r\nd\u001b[8me';
const SHOWN = 'a\\x1b]0;owned\\x07\\x1b[2J\\x9b8mb\\u{202e}\\u{200b}c';

it('text that others chose cannot control a terminal, hide text or turn its direction', () => {
  expect(printable(HOSTILE)).toBe(`${SHOWN}\\r\\nd\\x1b[8me`);
  expect(printableLines(HOSTILE)).toBe(`${SHOWN}\nd\\x1b[8me`);
});

it('what commands print keeps their own colours only', () => {
  expect(colouredLines(`\u001b[31mfailed\u001b[0m ${HOSTILE}`)).toBe(
    `\u001b[31mfailed\u001b[0m ${SHOWN}\\x0d\nd\\x1b[8me`,
  );
});

it('a value in a table stays on its line', () => {
  const table = renderTable([{ title: 'NAME' }], [['one\ntwo\u202e'], ['\u001b[32monline\u001b[0m']], 80);
  expect(table).toBe('NAME\none\\ntwo\\u{202e}\n\u001b[32monline\u001b[0m');
});

it('JSON output is the same JSON, without a raw control character', () => {
  const value = { text: HOSTILE, tag: '\u{e0041}' };
  expect(JSON.parse(jsonText(value))).toEqual(value);
  expect(jsonText(value, 0)).not.toMatch(/[\p{Cc}\p{Cf}]/u);
});
