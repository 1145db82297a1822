import { frameHead } from '../../src/lib/http/web-socket-frames.ts';

export const MASK = Buffer.from([0x12, 0x34, 0x56, 0x78]);

/** A frame as clients send it. */
export function clientFrame(opcode: number, payload: Buffer, isFinal = true): Buffer {
  const head = frameHead(opcode, payload.length);
  head[0] = ((head[0] as number) & 0x7f) | (isFinal ? 0x80 : 0);
  head[1] = (head[1] as number) | 0x80;
  return Buffer.concat([head, MASK, payload.map((byte, at) => byte ^ (MASK[at & 3] as number))]);
}
