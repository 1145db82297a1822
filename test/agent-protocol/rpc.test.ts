import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { JsonScanner } from '../../src/agent-protocol/rpc.ts';

const LIMITS = { bytes: 1 << 20, values: 10_000 };

describe('JsonScanner', () => {
  it('finds the end of any object, however it is split and whatever follows', () => {
    const body = fc.dictionary(fc.string({ unit: 'binary' }), fc.jsonValue());
    fc.assert(
      fc.property(
        body,
        fc.integer({ min: 1, max: 30 }),
        fc.constantFrom('', '\n', '{"next":1}'),
        (value, size, tail) => {
          const bytes = Buffer.from(` \n${JSON.stringify(value)}${tail}`);
          const scanner = new JsonScanner(LIMITS);
          let complete = false;
          for (let at = 0; at < bytes.length && !complete; at += size) {
            complete = scanner.push(bytes.subarray(at, at + size));
          }
          expect(complete).toBe(true);
          expect(JSON.stringify(scanner.parse())).toBe(JSON.stringify(value));
        },
      ),
    );
  });

  it.each(['[1]', 'null', '"{}"', '}{'])('rejects %s, which cannot become an object', (text) => {
    expect(() => new JsonScanner(LIMITS).push(Buffer.from(text))).toThrow(SyntaxError);
  });

  it('rejects an endless body once it exceeds the limit', () => {
    const scanner = new JsonScanner({ ...LIMITS, bytes: 1000 });
    scanner.push(Buffer.from('{"a":"'));
    expect(() => {
      for (let at = 0; at < 1000; at++) scanner.push(Buffer.from('}'));
    }).toThrow('too long');
  });

  it.each([
    ['elements', '{"a":[', '1,'],
    ['members', '{', '"a":1,'],
  ])('rejects a body with too many %s, and counts none within texts', (_what, opening, one) => {
    const scanner = new JsonScanner({ ...LIMITS, values: 100 });
    expect(scanner.push(Buffer.from(`${opening}"${','.repeat(1000)}":1,${one.repeat(98)}`))).toBe(false);
    expect(() => scanner.push(Buffer.from(one))).toThrow('too many values');
  });

  it.each(['{"a":', '['])('rejects a body that is nested too deeply: %s', (opening) => {
    const scanner = new JsonScanner(LIMITS);
    expect(scanner.push(Buffer.from(`{"a":${opening.repeat(60)}`))).toBe(false);
    expect(() => scanner.push(Buffer.from(opening.repeat(10)))).toThrow('nested too deeply');
  });

  it('scans a large body sent byte by byte in linear time', () => {
    const scanner = new JsonScanner(LIMITS);
    const bytes = Buffer.from(`{"a":"${'}'.repeat(1_000_000)}"}`);
    let complete = false;
    for (let at = 0; at < bytes.length; at++) complete = scanner.push(bytes.subarray(at, at + 1));
    expect(complete).toBe(true);
  });
});
