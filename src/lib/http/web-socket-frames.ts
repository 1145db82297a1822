/** Opcodes (RFC 6455, section 5.2). */
export const Opcode = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

/** Longest payload of a control frame (section 5.5). */
export const MAX_CONTROL = 125;
const LENGTH_16 = 126;
const LENGTH_64 = 127;
const MASK_LENGTH = 4;
const MAX_HEAD = 14;

/** Bytes that are no WebSocket, or break its rules. */
export class WebSocketProtocolError extends Error {}

/** The head of a frame. */
export interface Frame {
  readonly opcode: number;
  /** Whether it is the last one of its message. */
  readonly isFinal: boolean;
  /** The first reserved bit, which permessage-deflate sets on the first frame of a compressed message (RFC 7692). */
  readonly isCompressed: boolean;
  /** Bytes of its payload. */
  readonly length: number;
}

export interface WebSocketHandler {
  /** A frame begins. Its head keeps the rules; control frames may come between the frames of a message. */
  onFrame(frame: Frame): void;
  /** Whether the next piece is needed; unmasking costs most. */
  isWanted?(): boolean;
  /** A piece of the frame's payload, unmasked. */
  onPayload(piece: Buffer): void;
  onFrameEnd(frame: Frame): void;
}

export interface FrameRules {
  /** Frames of clients must be masked; null: either may be. */
  masked: true | null;
  /** Whether an extension that compresses was negotiated. */
  compression: boolean;
}

/** Parses the frames of one direction from pieces of any size, without keeping payload (RFC 6455, section 5). */
export class FrameReader {
  readonly #head = Buffer.alloc(MAX_HEAD);
  #headLength = 0;
  #frame: Frame | null = null;
  /** Missing bytes of the frame's payload. */
  #left = 0;
  #mask: Buffer | null = null;
  #maskAt = 0;
  /** Whether a message continues in further frames. */
  #isOpen = false;
  /** Nothing follows a close frame (section 5.5.1). */
  #isClosed = false;

  constructor(
    private readonly rules: FrameRules,
    private readonly handler: WebSocketHandler,
  ) {}

  /** @throws {WebSocketProtocolError} */
  read(bytes: Buffer): void {
    let at = 0;
    while (at < bytes.length && !this.#isClosed) {
      at = this.#left > 0 ? this.#readPayload(bytes, at) : this.#readHead(bytes, at);
    }
  }

  #readHead(bytes: Buffer, start: number): number {
    let at = start;
    while (at < bytes.length) {
      this.#head[this.#headLength++] = bytes[at++] as number;
      if (this.#headLength < 2 || this.#headLength < headLength(this.#head)) continue;
      this.#begin();
      break;
    }
    return at;
  }

  #begin(): void {
    const head = this.#head;
    const [first = 0, second = 0] = head;
    const isMasked = (second & 0x80) !== 0;
    const opcode = first & 0x0f;
    const frame = {
      opcode,
      isFinal: (first & 0x80) !== 0,
      isCompressed: (first & 0x40) !== 0,
      length: payloadLength(head),
    };
    this.#check(frame, (first & 0x30) !== 0, isMasked);
    if (opcode < Opcode.close) this.#isOpen = !frame.isFinal;
    this.#mask = isMasked ? Buffer.from(head.subarray(this.#headLength - MASK_LENGTH, this.#headLength)) : null;
    this.#maskAt = 0;
    this.#headLength = 0;
    this.#frame = frame;
    this.#left = frame.length;
    this.handler.onFrame(frame);
    if (frame.length === 0) this.#end(frame);
  }

  #check({ opcode, isFinal, isCompressed, length }: Frame, hasReserved: boolean, isMasked: boolean): void {
    const { masked, compression } = this.rules;
    check(!hasReserved && (compression || !isCompressed), 'reserved bits set');
    check(isMasked || masked === null, 'unmasked frame');
    if (opcode >= Opcode.close) {
      check(opcode <= Opcode.pong, 'unknown opcode');
      check(isFinal && length <= MAX_CONTROL, 'control frame too long or fragmented');
    } else {
      check(opcode <= Opcode.binary, 'unknown opcode');
      check((opcode === Opcode.continuation) === this.#isOpen, 'unexpected continuation or message');
    }
  }

  #readPayload(bytes: Buffer, at: number): number {
    const end = Math.min(bytes.length, at + this.#left);
    if (this.handler.isWanted?.() ?? true) {
      const piece = bytes.subarray(at, end);
      this.handler.onPayload(this.#mask ? unmasked(piece, this.#mask, this.#maskAt) : piece);
    }
    this.#maskAt = (this.#maskAt + end - at) & 3;
    this.#left -= end - at;
    if (this.#left === 0 && this.#frame) this.#end(this.#frame);
    return end;
  }

  #end(frame: Frame): void {
    this.#isClosed = frame.opcode === Opcode.close;
    this.handler.onFrameEnd(frame);
  }
}

/** The head of a server's frame, which is never masked. */
export function frameHead(opcode: number, length: number): Buffer {
  const first = 0x80 | opcode;
  if (length <= MAX_CONTROL) return Buffer.from([first, length]);
  const short = length <= 0xffff;
  const head = Buffer.alloc(short ? 4 : 10);
  head.writeUInt8(first, 0);
  head.writeUInt8(short ? LENGTH_16 : LENGTH_64, 1);
  if (short) head.writeUInt16BE(length, 2);
  else head.writeBigUInt64BE(BigInt(length), 2);
  return head;
}

/** Unmasks four bytes at a time: byte by byte, this would be the most expensive step. */
function unmasked(masked: Buffer, mask: Buffer, maskAt: number): Buffer {
  // A buffer of its own is aligned to words.
  const piece = Buffer.allocUnsafeSlow(masked.length);
  masked.copy(piece);
  const key = Uint8Array.from(mask, (_, at) => mask[(maskAt + at) & 3] as number);
  const [word = 0] = new Uint32Array(key.buffer);
  const words = new Uint32Array(piece.buffer, 0, piece.length >> 2);
  for (let at = 0; at < words.length; at++) words[at] = (words[at] as number) ^ word;
  for (let at = words.length * 4; at < piece.length; at++) piece[at] = (piece[at] as number) ^ (key[at & 3] as number);
  return piece;
}

/** @param head at least its first two bytes */
function headLength(head: Buffer): number {
  const second = head[1] as number;
  const code = second & 0x7f;
  const extended = code === LENGTH_16 ? 2 : code === LENGTH_64 ? 8 : 0;
  return 2 + extended + ((second & 0x80) === 0 ? 0 : MASK_LENGTH);
}

function payloadLength(head: Buffer): number {
  const code = (head[1] as number) & 0x7f;
  if (code < LENGTH_16) return code;
  if (code === LENGTH_16) return head.readUInt16BE(2);
  const length = head.readBigUInt64BE(2);
  check(length <= BigInt(Number.MAX_SAFE_INTEGER), 'invalid frame length');
  return Number(length);
}

function check(isRight: boolean, problem: string): void {
  if (!isRight) throw new WebSocketProtocolError(problem);
}
