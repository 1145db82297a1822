/** Kinds of frames (RFC 6455, section 5.2). */
export const Opcode = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

/** Reasons to end a WebSocket connection (RFC 6455, section 7.4.1). */
export const CloseCode = { normal: 1000, protocolError: 1002, unsupportedData: 1003, internalError: 1011 } as const;

/** Raised for what a client must not send; the connection is to be closed with the code. */
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
  /** A piece of a binary message, unmasked. Where messages begin and end does not matter to a stream of bytes. */
  onBytes(piece: Buffer): void;
  onControl(opcode: number, payload: Buffer): void;
}

const MAX_CONTROL = 125;
const LENGTH_16 = 126;
const LENGTH_64 = 127;
const MASK_LENGTH = 4;

/** The head of a frame that a server sends; nothing is masked then. */
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

/** Reads a client's frames as they come, whatever pieces they come in; of a message nothing is kept. */
export class FrameReader {
  readonly #events: FrameEvents;
  /** Of a frame whose head is not complete. */
  #head = Buffer.alloc(0);
  #opcode = 0;
  /** Of the frame's payload, still to come. */
  #remaining = 0;
  #mask = Buffer.alloc(MASK_LENGTH);
  #maskAt = 0;
  /** Payload of a control frame, of which there are never more than 125 bytes. */
  #control: Buffer[] = [];
  /** Whether a message has begun that further frames continue. */
  #open = false;
  /** After a close frame there is nothing to be read (section 5.5.1). */
  #closed = false;

  constructor(events: FrameEvents) {
    this.#events = events;
  }

  /** @throws {WebSocketFault} when the client breaks the protocol */
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
    check((first & 0x70) === 0, 'reserved bits are set');
    check((second & 0x80) !== 0, 'a frame of the client is not masked');
    if (this.#opcode >= Opcode.close) {
      check(this.#opcode <= Opcode.pong, 'the kind of a frame is unknown');
      check(isFinal && this.#remaining <= MAX_CONTROL, 'a control frame is too long or in pieces');
    } else {
      check(this.#opcode <= Opcode.binary, 'the kind of a frame is unknown');
      check((this.#opcode === Opcode.continuation) === this.#open, 'a message is out of order');
      if (this.#opcode === Opcode.text) throw new WebSocketFault(CloseCode.unsupportedData, 'text is not carried');
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
    else this.#events.onBytes(piece);
    if (this.#remaining === 0) this.#finish();
    return chunk.subarray(piece.length);
  }

  #finish(): void {
    if (this.#opcode < Opcode.close) return;
    this.#closed = this.#opcode === Opcode.close;
    this.#events.onControl(this.#opcode, Buffer.concat(this.#control));
  }
}

/** Takes a client's mask off, four bytes at once: byte by byte it would be the dearest part of all. */
function unmasked(masked: Buffer, mask: Buffer, maskAt: number): Buffer {
  // Of its own, and so at the beginning of a word.
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

/** @returns null when that cannot be told yet */
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
  check(length <= BigInt(Number.MAX_SAFE_INTEGER), 'the length of a frame is none');
  return Number(length);
}
