import { expect, it } from 'vitest';
import { LineReader } from '../../../../src/agent/connectors/native/requests.ts';

function setUp() {
  const lines: string[] = [];
  let ends = 0;
  const reader = new LineReader(
    (line) => lines.push(line),
    () => {
      ends += 1;
    },
  );
  return { lines, reader, ends: () => ends };
}

it('lines are whole, wherever the stream is cut', () => {
  const bytes = Buffer.from('{"a":"ü"}\n\n{"b":2}\nrest');
  for (let size = 1; size <= bytes.length; size++) {
    const { lines, reader } = setUp();
    for (let at = 0; at < bytes.length; at += size) reader.onData(bytes.subarray(at, at + size));
    expect(lines).toEqual(['{"a":"ü"}', '', '{"b":2}']);
  }
});

it('a line that is too long ends the stream, and nothing of it is kept', () => {
  const { lines, reader, ends } = setUp();
  for (let count = 0; count < 3; count++) reader.onData(Buffer.alloc(65_536, 'a'));
  expect([lines, ends()]).toEqual([[], 1]);
});
