/** Opcodes (RFC 6455, section 5.2). */
export const Opcode = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

/** Close codes (RFC 6455, section 7.4.1). */
export const CloseCode = { normal: 1000, protocolError: 1002, internalError: 1011 } as const;

/** Invalid data from a client; closes the connection with the code. */
export class WebSocketFault extends Error {
  constructor(
    readonly code: number,
    message: string,
  ) {
    super(message);
    this.name = 'WebSocketFault';
  }
}

export interface FrameEvents {
  /** A piece of a message, unmasked. Boundaries and whether it was text or binary are dropped. */
  onBytes(piece: Buffer): void;
  onControl(opcode: number, payload: Buffer): void;
}

const MAX_CONTROL = 125;
const LENGTH_16 = 126;
const LENGTH_64 = 127;
const MASK_LENGTH = 4;

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

/** Parses a client's frames from pieces of any size, without buffering messages. */
export class FrameReader {
  #head = Buffer.alloc(0);
  #opcode = 0;
  /** Missing bytes of the frame's payload. */
  #remaining = 0;
  #mask = Buffer.alloc(MASK_LENGTH);
  #maskAt = 0;
  /** Payload of a control frame, at most 125 bytes. */
  #control: Buffer[] = [];
  /** Whether a message continues in further frames. */
  #open = false;
  /** Nothing follows a close frame (section 5.5.1). */
  #closed = false;

  constructor(private readonly events: FrameEvents) {}

  /** @throws {WebSocketFault} when the client violates the protocol */
  push(chunk: Buffer): void {
    let rest = chunk;
    while (rest.length > 0 && !this.#closed) {
      rest = this.#remaining > 0 ? this.#takePayload(rest) : this.#takeHead(rest);
    }
  }

  #takeHead(chunk: Buffer): Buffer {
    const known = this.#head.length;
    const bytes = known === 0 ? chunk : Buffer.concat([this.#head, chunk]);
    const length = headLength(bytes);
    if (length === null || bytes.length < length) {
      this.#head = Buffer.from(bytes);
      return Buffer.alloc(0);
    }
    this.#head = Buffer.alloc(0);
    this.#begin(bytes.subarray(0, length));
    return bytes.subarray(length);
  }

  #begin(head: Buffer): void {
    const [first = 0, second = 0] = head;
    const isFinal = (first & 0x80) !== 0;
    this.#opcode = first & 0x0f;
    this.#remaining = payloadLength(head);
    check((first & 0x70) === 0, 'reserved bits set');
    check((second & 0x80) !== 0, 'unmasked frame');
    if (this.#opcode >= Opcode.close) {
      check(this.#opcode <= Opcode.pong, 'unknown opcode');
      check(isFinal && this.#remaining <= MAX_CONTROL, 'control frame too long or fragmented');
    } else {
      check(this.#opcode <= Opcode.binary, 'unknown opcode');
      check((this.#opcode === Opcode.continuation) === this.#open, 'unexpected continuation or message');
      this.#open = !isFinal;
    }
    head.copy(this.#mask, 0, head.length - MASK_LENGTH);
    this.#maskAt = 0;
    this.#control = [];
    if (this.#remaining === 0) this.#finish();
  }

  #takePayload(chunk: Buffer): Buffer {
    const piece = unmasked(chunk.subarray(0, this.#remaining), this.#mask, this.#maskAt);
    this.#maskAt = (this.#maskAt + piece.length) & 3;
    this.#remaining -= piece.length;
    if (this.#opcode >= Opcode.close) this.#control.push(piece);
    else this.events.onBytes(piece);
    if (this.#remaining === 0) this.#finish();
    return chunk.subarray(piece.length);
  }

  #finish(): void {
    if (this.#opcode < Opcode.close) return;
    this.#closed = this.#opcode === Opcode.close;
    this.events.onControl(this.#opcode, Buffer.concat(this.#control));
  }
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

function check(isRight: boolean, problem: string): void {
  if (!isRight) throw new WebSocketFault(CloseCode.protocolError, problem);
}

/** @returns null when not known yet */
function headLength(bytes: Buffer): number | null {
  if (bytes.length < 2) return null;
  const second = bytes[1] as number;
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
