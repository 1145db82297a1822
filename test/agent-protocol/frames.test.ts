import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FrameDecoder, type FrameHandler, FrameWriter, ProtocolViolation } from '../../src/agent-protocol/frames.ts';
import { fuzz } from '../support/fuzz.ts';

type Seen =
  | { kind: 'data'; id: number; payload: string; syn: boolean; fin: boolean }
  | { kind: 'reset'; id: number }
  | { kind: 'credit'; id: number; increment: number }
  | { kind: 'goaway' };

/** Collects what a decoder reports, with the pieces of a payload joined. */
class Collector implements FrameHandler {
  readonly seen: Seen[] = [];
  #data = { id: 0, length: 0, syn: false, pieces: [] as Buffer[] };

  onData(id: number, length: number, syn: boolean): void {
    this.#data = { id, length, syn, pieces: [] };
  }
  onPayload(piece: Buffer): void {
    expect(piece.length).toBeGreaterThan(0);
    this.#data.pieces.push(Buffer.from(piece));
  }
  onDataEnd(fin: boolean): void {
    const { id, length, syn, pieces } = this.#data;
    const payload = Buffer.concat(pieces);
    expect(payload.length).toBe(length);
    this.seen.push({ kind: 'data', id, payload: payload.toString('hex'), syn, fin });
  }
  onReset(id: number): void {
    this.seen.push({ kind: 'reset', id });
  }
  onWindowIncrement(id: number, increment: number): void {
    this.seen.push({ kind: 'credit', id, increment });
  }
  onGoAway(): void {
    this.seen.push({ kind: 'goaway' });
  }
}

function decode(...chunks: Buffer[]): Seen[] {
  const collector = new Collector();
  const decoder = new FrameDecoder(collector);
  for (const chunk of chunks) decoder.push(chunk);
  return collector.seen;
}

const streamId = fc.integer({ min: 1, max: 0x7fffffff });
const frame = fc.oneof(
  fc.record({
    kind: fc.constant('data' as const),
    id: streamId,
    payload: fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes).toString('hex')),
    syn: fc.boolean(),
    fin: fc.boolean(),
  }),
  fc.record({ kind: fc.constant('reset' as const), id: streamId }),
  fc.record({ kind: fc.constant('credit' as const), id: streamId, increment: fc.integer({ min: 1, max: 0x7fffffff }) }),
);

function encode(frames: readonly Seen[]): Buffer {
  const writer = new FrameWriter();
  for (const one of frames) {
    if (one.kind === 'reset') writer.reset(one.id, 6);
    else if (one.kind === 'credit') writer.windowIncrement(one.id, one.increment);
    else if (one.kind === 'data') {
      const payload = Buffer.from(one.payload, 'hex');
      writer.data(one.id, [payload.subarray(0, 7), payload.subarray(7)], payload.length, one);
    }
  }
  return Buffer.concat(writer.take());
}

describe('frames', () => {
  it.each([
    [
      'agent opens its heartbeat',
      '0000041200000003ffffffff',
      { kind: 'data', id: 3, payload: 'ffffffff', syn: true, fin: false },
    ],
    ['empty FIN', '0000001100000005', { kind: 'data', id: 5, payload: '', syn: false, fin: true }],
    ['credit of 32', '000004200000000500000020', { kind: 'credit', id: 5, increment: 32 }],
    ['RST', '000004000000000200000006', { kind: 'reset', id: 2 }],
    ['GOAWAY', '00000830000000000000000900000000', { kind: 'goaway' }],
  ] as [string, string, Seen][])('decodes and encodes the frame: %s', (_name, hex, seen) => {
    expect(decode(Buffer.from(hex, 'hex'))).toEqual([seen]);
    if (seen.kind !== 'goaway') expect(encode([seen]).toString('hex')).toBe(hex);
  });

  it('decodes the same frames however the bytes are split', () => {
    fc.assert(
      fc.property(fc.array(frame, { maxLength: 12 }), fc.array(fc.integer({ min: 1, max: 40 })), (frames, sizes) => {
        let rest = encode(frames);
        const chunks: Buffer[] = [];
        for (const size of sizes) {
          chunks.push(rest.subarray(0, size));
          rest = rest.subarray(size);
        }
        expect(decode(...chunks, rest)).toEqual(frames);
      }),
    );
  });

  it('passes payload on before the frame is complete', () => {
    const pieces: number[] = [];
    const collector = new Collector();
    collector.onPayload = (piece) => pieces.push(piece.length);
    const decoder = new FrameDecoder(collector);
    decoder.push(Buffer.from('ffffff1000000005', 'hex'));
    for (let at = 0; at < 5; at++) decoder.push(Buffer.alloc(65_536));
    expect(pieces).toEqual([65_536, 65_536, 65_536, 65_536, 65_536]);
  });

  it('ignores everything after a GOAWAY, whose length cannot be trusted', () => {
    const goAway = Buffer.from('00000230000000000000000900000001', 'hex');
    expect(decode(goAway, Buffer.from('hello, this is no frame'))).toEqual([{ kind: 'goaway' }]);
  });

  it.each([
    ['an unknown frame type', '0000004000000005'],
    ['DATA on stream 0', '0000001000000000'],
    ['RST with a long body', '000005000000000500000000'],
    ['WNDINC with a short body', '00000220000000050000'],
    ['WNDINC on stream 0', '000004200000000000000001'],
  ])('refuses %s', (_name, hex) => {
    expect(() => decode(Buffer.from(hex, 'hex'))).toThrow(ProtocolViolation);
  });

  it('throws nothing but protocol violations on arbitrary bytes', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 64 }), { maxLength: 20 }), (chunks) => {
        const decoder = new FrameDecoder({
          onData() {},
          onPayload() {},
          onDataEnd() {},
          onReset() {},
          onWindowIncrement() {},
          onGoAway() {},
        });
        try {
          for (const chunk of chunks) decoder.push(Buffer.from(chunk));
        } catch (error) {
          expect(error).toBeInstanceOf(ProtocolViolation);
        }
      }),
      fuzz(500),
    );
  });
});
