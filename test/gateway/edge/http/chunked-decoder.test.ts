import { describe, expect, it } from 'vitest';
import { ChunkedDecoder } from '../../../../src/gateway/edge/http/chunked-decoder.ts';
import { HeadersTooLong } from '../../../../src/gateway/edge/http/headers.ts';
import { MalformedMessage } from '../../../../src/lib/http/response-head.ts';

const LIMIT = 128;

/** Decodes one body, fed in pieces of a size, and returns it with its trailers and the rest. */
function decode(decoder: ChunkedDecoder, text: string, size = text.length) {
  let body = '';
  let rest = '';
  for (let start = 0; start < text.length; start += size) {
    const bytes = Buffer.from(text.slice(start, start + size), 'latin1');
    let at = 0;
    while (at < bytes.length && decoder.trailers === null) {
      at = decoder.take(bytes, at);
      body += decoder.piece?.toString('latin1') ?? '';
    }
    rest += bytes.toString('latin1', at);
  }
  return { body, rest, trailers: decoder.trailers };
}

function started(strict: boolean): ChunkedDecoder {
  const decoder = new ChunkedDecoder(LIMIT, strict);
  decoder.start();
  return decoder;
}

describe.each([true, false])('a chunked body, strict: %j', (strict) => {
  it.each([1, 2, 3, 100])('is decoded from pieces of %i bytes', (size) => {
    const text = '5\r\nhello\r\n0015;x="y" \t\x80\r\n, wide world, and all\r\n0\r\nX-Sum: 1\r\n\r\nnext';
    expect(decode(started(strict), text, size)).toEqual({
      body: 'hello, wide world, and all',
      rest: 'next',
      trailers: ['X-Sum', '1'],
    });
  });

  it('passes small chunks on together, and large ones as they are', () => {
    const large = 'b'.repeat(2000);
    const bytes = Buffer.from(`${'1\r\na\r\n'.repeat(1000)}7d0\r\n${large}\r\n2\r\ncc\r\n1\r\nd\r\n0\r\n\r\n`);
    const decoder = started(strict);
    const pieces: string[] = [];
    for (let at = 0; at < bytes.length; ) {
      at = decoder.take(bytes, at);
      if (decoder.piece !== null) pieces.push(decoder.piece.toString());
    }
    expect([pieces, decoder.trailers]).toEqual([['a'.repeat(1000), large, 'ccd'], []]);
  });

  it('starts again for the next body', () => {
    const decoder = started(strict);
    expect(decode(decoder, '1;ext\r\na\r\n0\r\n\r\n')).toEqual({ body: 'a', rest: '', trailers: [] });
    decoder.start();
    expect(decode(decoder, 'F\r\n123456789012345\r\n0\r\nA: b\r\n\r\n').trailers).toEqual(['A', 'b']);
  });

  it('allows 13 digits of a size and 4096 bytes of extensions', () => {
    expect(decode(started(strict), `0000000000001\r\na\r\n0\r\n\r\n`).body).toBe('a');
    expect(decode(started(strict), `1;${'e'.repeat(4096)}\r\na\r\n0\r\n\r\n`).body).toBe('a');
    expect(() => decode(started(strict), `1;${'e'.repeat(4097)}\r\na`)).toThrow(MalformedMessage);
    expect(() => decode(started(strict), '00000000000001\r\na')).toThrow(MalformedMessage);
  });

  it('rejects trailers above the limit', () => {
    expect(() => decode(started(strict), `0\r\nX: ${'x'.repeat(LIMIT)}\r\n\r\n`)).toThrow(HeadersTooLong);
  });

  it.each([
    ['no size', '\r\n'],
    ['an extension without a size', ';x\r\n'],
    ['a size that is no number', 'g\r\n'],
    ['a size in another style', '0x1\r\n'],
    ['a digit before 0', '/\r\n'],
    ['a digit after 9', ':\r\n'],
    ['a digit before A', '@\r\n'],
    ['a digit before a', '`\r\n'],
    ['a size that ends in a bare CR', '1\ra'],
    ['a control character in an extension', '1;\x1f\r\n'],
    ['a delete character in an extension', '1;\x7f\r\n'],
    ['a chunk longer than its size', '1\r\nab'],
    ['a chunk that ends in a bare CR', '1\r\na\ra'],
  ])('is rejected with %s', (_what, text) => {
    expect(() => decode(started(strict), text)).toThrow(MalformedMessage);
  });
});

it.each([
  '1 \r\na\r\n0\t\r\n\r\n',
  '1\t;x\r\na\r\n0\r\nContent-Length: 5\r\n\r\n',
  '1\na\r\n0\r\n\r\n',
  '1;x\na\r\n0\r\n\r\n',
  '1\r\na\n0\n\n',
  '1\r\na\r\n0\r\nnone\r\n\r\n',
])(
  'padded sizes, lines that end in LF, malformed and framing trailers are rejected in strict mode only: %j',
  (text) => {
    expect(decode(started(false), text).body).toBe('a');
    expect(() => decode(started(true), text)).toThrow(MalformedMessage);
  },
);

it.each(['Content-Length', 'transfer-encoding'])(
  'a trailer %s is rejected in strict mode, but not as a value',
  (name) => {
    expect(() => decode(started(true), `0\r\n${name}: 1\r\n\r\n`)).toThrow(MalformedMessage);
    expect(() => decode(started(true), `0\r\nX: 1\r\n${name}: 1\r\n\r\n`)).toThrow(MalformedMessage);
    expect(decode(started(true), `0\r\nX: ${name}\r\nY-${name}: 1\r\n${name}-Y: 1\r\n\r\n`).trailers).toHaveLength(6);
  },
);
