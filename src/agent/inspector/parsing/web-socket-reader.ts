import { ParseFailure } from './parse-failure.ts';
import { PendingBytes, type PendingMemory } from './pending-bytes.ts';
import type { WebSocketInflater } from './web-socket-inflater.ts';

export interface WebSocketMessage {
  type: 'text' | 'binary' | 'close';
  /** Bytes of the payload as sent, which may be compressed. */
  size: number;
  /** The payload, or its beginning. */
  data: Buffer;
  /** Whether more was sent than `data`. */
  truncated: boolean;
  /** Why the payload is as it was sent, or missing; null when it is neither. */
  error: string | null;
}

interface Message {
  type: 'text' | 'binary';
  compressed: boolean;
  size: number;
  complete: boolean;
}

const MAX_HEADER = 14;
/** More of a message is not kept, compressed or not. */
const MAX_MESSAGE = 64 * 1024;
const MAX_CONTROL = 125;
const CONTINUATION = 0;
const TEXT = 1;
const BINARY = 2;
const CLOSE = 8;
const NO_DATA = Buffer.alloc(0);

/** Reads the messages of a WebSocket (RFC 6455) that pass in one direction. */
export class WebSocketReader {
  readonly #header = Buffer.alloc(MAX_HEADER);
  #headerLength = 0;
  #left = 0;
  #isFinal = false;
  #opcode = CONTINUATION;
  #isMasked = false;
  #maskAt = 0;
  #message: Message | null = null;
  /** Payload of the message, without its mask; a control frame between its parts has its own. */
  readonly #payload: PendingBytes;
  readonly #control: PendingBytes;

  /**
   * @param inflater null when the connection does not compress
   * @param onMessage called for each message and for the close frame
   */
  constructor(
    private readonly inflater: WebSocketInflater | null,
    memory: PendingMemory,
    private readonly onMessage: (message: WebSocketMessage) => void,
  ) {
    this.#payload = new PendingBytes(MAX_MESSAGE, memory);
    this.#control = new PendingBytes(MAX_CONTROL, memory);
  }

  /** @throws {ParseFailure} for what is no WebSocket */
  read(bytes: Buffer): void {
    let at = 0;
    while (at < bytes.length) at = this.#left > 0 ? this.#readPayload(bytes, at) : this.#readHeader(bytes, at);
  }

  /** Gives back the memory of a message that will not end. */
  release(): void {
    this.#payload.clear();
    this.#control.clear();
    this.inflater?.release();
  }

  #readHeader(bytes: Buffer, start: number): number {
    let at = start;
    while (at < bytes.length) {
      this.#header[this.#headerLength++] = bytes[at++] as number;
      if (this.#headerLength < 2 || this.#headerLength < headerSize(this.#header)) continue;
      this.#frameBegins();
      break;
    }
    return at;
  }

  #frameBegins(): void {
    const header = this.#header;
    const [first = 0, second = 0] = header;
    this.#isFinal = (first & 0x80) !== 0;
    this.#opcode = first & 0x0f;
    this.#isMasked = (second & 0x80) !== 0;
    this.#maskAt = this.#isMasked ? this.#headerLength - 4 : 0;
    this.#left = payloadLength(header);
    const compressed = (first & 0x40) !== 0;
    if ((first & 0x30) !== 0 || (compressed && this.inflater === null)) throw notAWebSocket();
    if (this.#opcode >= CLOSE) {
      if (this.#left > MAX_CONTROL || !this.#isFinal) throw notAWebSocket();
    } else if (this.#opcode === CONTINUATION) {
      if (this.#message === null) throw notAWebSocket();
    } else {
      if (this.#message !== null || this.#opcode > BINARY) throw notAWebSocket();
      const type = this.#opcode === TEXT ? 'text' : 'binary';
      this.#message = { type, compressed, size: 0, complete: true };
    }
    if (this.#message && this.#opcode < CLOSE) this.#message.size += this.#left;
    if (this.#left === 0) this.#frameEnds();
  }

  #readPayload(bytes: Buffer, at: number): number {
    const end = Math.min(bytes.length, at + this.#left);
    const isControl = this.#opcode >= CLOSE;
    const payload = isControl ? this.#control : this.#payload;
    const message = isControl ? null : this.#message;
    const room = isControl ? MAX_CONTROL : MAX_MESSAGE;
    const taken = message?.complete === false ? 0 : Math.min(end - at, room - payload.length);
    if (taken > 0 && !payload.append(this.#unmasked(bytes.subarray(at, at + taken))) && message)
      message.complete = false;
    if (taken < end - at && message) message.complete = false;
    if (this.#isMasked) this.#turnMask(end - at);
    this.#left -= end - at;
    if (this.#left === 0) this.#frameEnds();
    return end;
  }

  #unmasked(bytes: Buffer): Buffer {
    if (!this.#isMasked) return bytes;
    const copy = Buffer.from(bytes);
    for (let at = 0; at < copy.length; at++) {
      copy[at] = (copy[at] as number) ^ (this.#header[this.#maskAt + (at & 3)] as number);
    }
    return copy;
  }

  /** Makes the key begin at the byte of it that comes next. */
  #turnMask(bytes: number): void {
    const key = this.#header.subarray(this.#maskAt, this.#maskAt + 4);
    const turned = [0, 1, 2, 3].map((at) => key[(at + bytes) & 3] as number);
    key.set(turned);
  }

  #frameEnds(): void {
    this.#headerLength = 0;
    if (this.#opcode === CLOSE) {
      const data = Buffer.from(this.#control.bytes);
      this.onMessage({ type: 'close', size: data.length, data, truncated: false, error: null });
    }
    if (this.#opcode >= CLOSE) this.#control.clear();
    else if (this.#isFinal) this.#messageEnds();
  }

  #messageEnds(): void {
    const message = this.#message;
    if (message === null) return;
    const { type, size, complete, compressed } = message;
    this.#message = null;
    if (compressed && this.inflater) {
      this.onMessage({ type, size, ...this.inflater.inflate(complete ? this.#payload.bytes : null) });
    } else {
      const data = this.#payload.length === 0 ? NO_DATA : this.#payload.bytes;
      this.onMessage({ type, size, data, truncated: !complete, error: null });
    }
    this.#payload.clear();
  }
}

function headerSize(header: Buffer): number {
  const second = header[1] as number;
  const length = second & 0x7f;
  return 2 + (length === 126 ? 2 : length === 127 ? 8 : 0) + ((second & 0x80) !== 0 ? 4 : 0);
}

function payloadLength(header: Buffer): number {
  const length = (header[1] as number) & 0x7f;
  if (length < 126) return length;
  if (length === 126) return header.readUInt16BE(2);
  const long = header.readBigUInt64BE(2);
  if (long > BigInt(Number.MAX_SAFE_INTEGER)) throw notAWebSocket();
  return Number(long);
}

const notAWebSocket = () => new ParseFailure('not a WebSocket');
