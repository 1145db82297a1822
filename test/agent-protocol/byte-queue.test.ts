import fc from 'fast-check';
import { expect, it } from 'vitest';
import { ByteQueue } from '../../src/agent-protocol/byte-queue.ts';

it('a queue returns its bytes in order, whatever the pieces and the limits', () => {
  const push = fc.uint8Array({ minLength: 1, maxLength: 40 }).map((bytes) => ({ bytes: Buffer.from(bytes) }));
  const large = fc.integer({ min: 4000, max: 9000 }).map((size) => ({ bytes: Buffer.alloc(size, size) }));
  const take = fc.record({ limit: fc.integer({ min: 0, max: 12_000 }) });
  const steps = fc.array(fc.oneof({ weight: 4, arbitrary: push }, large, take), { maxLength: 60 });
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 3 }), steps, (uncopied, some) => {
      const queue = new ByteQueue(uncopied);
      let expected = Buffer.alloc(0);
      for (const step of some) {
        if ('bytes' in step) {
          queue.push(step.bytes);
          expected = Buffer.concat([expected, step.bytes]);
        } else {
          expect(Buffer.concat(queue.take(step.limit)).equals(expected.subarray(0, step.limit))).toBe(true);
          expected = expected.subarray(step.limit);
        }
        expect(queue.length).toBe(expected.length);
      }
      expect(Buffer.concat(queue.take(queue.length)).equals(expected)).toBe(true);
    }),
  );
});

it('a queue keeps bytes that arrive one by one in few buffers, and no chunk that they were cut from', () => {
  const queue = new ByteQueue(0);
  const chunk = Buffer.alloc(65_536);
  for (let at = 0; at < 65_536; at++) queue.push(chunk.subarray(at, at + 1));
  const pieces = queue.take(65_536);
  expect(pieces).toHaveLength(16);
  expect(pieces.some(({ buffer }) => buffer === chunk.buffer)).toBe(false);
});
