import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FrameReader, frameHead, Opcode, WebSocketProtocolError } from '../../../src/lib/http/web-socket-frames.ts';
import { clientFrame, MASK } from '../../support/web-socket-client-frame.ts';

/** Parses a client's bytes that arrive in these pieces. */
function read(pieces: readonly Buffer[]) {
  const bytes: Buffer[] = [];
  const controls: [number, string][] = [];
  let payload: Buffer[] = [];
  const reader = new FrameReader(
    { masked: true, compression: false },
    {
      onFrame: () => {
        payload = [];
      },
      onPayload: (piece) => payload.push(piece),
      onFrameEnd: ({ opcode }) => {
        if (opcode < Opcode.close) bytes.push(...payload);
        else controls.push([opcode, Buffer.concat(payload).toString('latin1')]);
      },
    },
  );
  for (const piece of pieces) reader.read(piece);
  return { bytes: Buffer.concat(bytes), controls };
}

describe('FrameReader', () => {
  it('parses frames the same way however they are split', () => {
    const payloads = fc.array(fc.uint8Array({ maxLength: 300 }), { minLength: 1, maxLength: 6 });
    const splits = fc.array(fc.nat(2000), { maxLength: 20 });
    fc.assert(
      fc.property(payloads, splits, (parts, at) => {
        const wire = Buffer.concat(
          parts.flatMap((part, number) => [
            clientFrame(number === 0 ? 2 : 0, Buffer.from(part), number === parts.length - 1),
            // Control frames may interrupt a fragmented message.
            clientFrame(9, Buffer.from(String(number))),
          ]),
        );
        const ends = [...at.filter((end) => end < wire.length), wire.length].sort((one, other) => one - other);
        const seen = read(ends.map((end, number) => wire.subarray(number === 0 ? 0 : ends[number - 1], end)));
        expect(seen.bytes).toEqual(Buffer.concat(parts));
        expect(seen.controls).toEqual(parts.map((_, number) => [9, String(number)]));
      }),
    );
  });

  it('reads long frames', () => {
    const payload = Buffer.alloc(70_000, 'long');
    expect(read([clientFrame(2, payload)]).bytes.equals(payload)).toBe(true);
  });

  it('reads text like binary messages', () => {
    const wire = Buffer.concat([clientFrame(1, Buffer.from('ü'), false), clientFrame(0, Buffer.from('ber'))]);
    expect(read([wire]).bytes.toString()).toBe('über');
  });

  it('ignores everything after a close frame', () => {
    const wire = Buffer.concat([clientFrame(8, Buffer.from([0x03, 0xe8])), clientFrame(2, Buffer.from('late'))]);
    expect(read([wire])).toEqual({ bytes: Buffer.alloc(0), controls: [[8, '\x03\xe8']] });
  });

  it.each<[string, Buffer]>([
    ['reserved bits', clientFrame(2 | 0x40, Buffer.alloc(1))],
    ['no mask', frameHead(2, 1)],
    ['an unknown kind', clientFrame(3, Buffer.alloc(1))],
    ['an unknown control frame', clientFrame(11, Buffer.alloc(1))],
    ['a long control frame', clientFrame(9, Buffer.alloc(126))],
    ['a control frame in pieces', clientFrame(9, Buffer.alloc(1), false)],
    ['a continuation of nothing', clientFrame(0, Buffer.alloc(1))],
    ['two messages at once', Buffer.concat([clientFrame(2, Buffer.alloc(1), false), clientFrame(2, Buffer.alloc(1))])],
    ['a length beyond all', Buffer.concat([Buffer.from([0x82, 0xff]), Buffer.alloc(8, 0xff), MASK])],
  ])('rejects %s', (_what, wire) => {
    expect(() => read([wire])).toThrow(WebSocketProtocolError);
  });
});
