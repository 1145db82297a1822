import type { Duplex, Writable } from 'node:stream';

// The framing is muxado's. Layout, codes and quirks were measured on the wire with `@ngrok/ngrok` 1.7.0 (Rust, muxado
// 0.5.0); what is said about the Go SDK comes from its public source.

/** Frame types: bits 7..4 of the header's first word. */
const RST = 0;
const DATA = 1;
const WNDINC = 2;
const GOAWAY = 3;

/** Flags of a DATA frame: bits 3..0 of the header's first word. */
const FIN = 0x1;
const SYN = 0x2;

const HEADER_LENGTH = 8;

export type Role = 'agent' | 'gateway';

/** Agents open streams with odd ids from 3 on, gateways with even ones from 2 on. */
export const FIRST_ID: Readonly<Record<Role, number>> = { agent: 3, gateway: 2 };

const ID_MASK = 0x7fffffff;

/** From here on, ids begin again at the first one that is free. */
export const LAST_ID = ID_MASK - 1;

export const MuxError = {
  none: 0,
  protocol: 1,
  streamClosed: 4,
  cancelled: 6,
} as const;
export type MuxError = (typeof MuxError)[keyof typeof MuxError];

/** The peer violated the protocol; nothing that follows on the connection can be trusted. */
export class ProtocolViolation extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'ProtocolViolation';
  }
}

/** Receives the frames that a {@link FrameDecoder} finds. A DATA frame arrives as a header, payload pieces and an end. */
export interface FrameHandler {
  onData(streamId: number, length: number, syn: boolean): void;
  /** A piece of the current DATA frame's payload; never empty. */
  onPayload(piece: Buffer): void;
  onDataEnd(fin: boolean): void;
  onReset(streamId: number): void;
  onWindowIncrement(streamId: number, increment: number): void;
  onGoAway(): void;
}

/** Decodes frames from chunks of any size. Payload is passed on uncopied as it arrives, so a long frame needs no memory. */
export class FrameDecoder {
  /** Bytes read of the current header, including the word after it in RST and WNDINC frames. */
  #seen = 0;
  #first = 0;
  #id = 0;
  #value = 0;
  #payloadLeft = 0;
  #inPayload = false;
  #stopped = false;

  constructor(private readonly handler: FrameHandler) {}

  /**
   * @returns how many bytes were decoded; fewer than given when the handler has called {@link stop}
   * @throws {ProtocolViolation} when they cannot be a frame; the decoder cannot be used afterwards
   */
  push(chunk: Buffer): number {
    let at = 0;
    while (at < chunk.length && !this.#stopped) {
      if (this.#inPayload) {
        const end = Math.min(chunk.length, at + this.#payloadLeft);
        this.#payloadLeft -= end - at;
        this.handler.onPayload(chunk.subarray(at, end));
        at = end;
        if (this.#payloadLeft === 0) this.#endData();
      } else if (this.#seen === 0 && chunk.length - at >= HEADER_LENGTH) {
        // Byte by byte takes half as long again.
        this.#first = chunk.readInt32BE(at);
        this.#id = chunk.readInt32BE(at + 4);
        this.#seen = HEADER_LENGTH;
        at += HEADER_LENGTH;
        this.#takeHeader();
      } else if (this.#seen === HEADER_LENGTH && chunk.length - at >= 4) {
        this.#value = chunk.readInt32BE(at);
        at += 4;
        this.#takeControl();
      } else {
        this.#takeHeaderByte(chunk[at++] as number);
      }
    }
    return at;
  }

  stop(): void {
    this.#stopped = true;
  }

  resume(): void {
    this.#stopped = false;
  }

  #takeHeaderByte(byte: number): void {
    const seen = this.#seen++;
    if (seen < 4) this.#first = (this.#first << 8) | byte;
    else if (seen < HEADER_LENGTH) this.#id = (this.#id << 8) | byte;
    else this.#value = (this.#value << 8) | byte;
    if (seen === HEADER_LENGTH - 1) this.#takeHeader();
    else if (seen === HEADER_LENGTH + 3) this.#takeControl();
  }

  #takeHeader(): void {
    this.#id &= ID_MASK;
    const length = this.#first >>> 8;
    const type = (this.#first >>> 4) & 0xf;
    if (type === GOAWAY) {
      // The Rust SDK sends a length that is 8 too small, so the bytes that follow cannot be parsed.
      this.stop();
      this.handler.onGoAway();
      return;
    }
    if (type > GOAWAY) throw new ProtocolViolation(`unknown frame type ${type}`);
    if (this.#id === 0) throw new ProtocolViolation('frame for stream 0');
    if (type === DATA) {
      this.handler.onData(this.#id, length, (this.#first & SYN) !== 0);
      this.#payloadLeft = length;
      this.#inPayload = true;
      if (length === 0) this.#endData();
    } else if (length !== 4) {
      throw new ProtocolViolation(`frame of type ${type} with a body of ${length} bytes`);
    }
  }

  #endData(): void {
    this.#inPayload = false;
    this.#seen = 0;
    this.handler.onDataEnd((this.#first & FIN) !== 0);
  }

  #takeControl(): void {
    this.#seen = 0;
    if (((this.#first >>> 4) & 0xf) === RST) this.handler.onReset(this.#id);
    else this.handler.onWindowIncrement(this.#id, this.#value & ID_MASK);
  }
}

/** Pieces of this size and above are not joined: copying them costs more than it saves. */
const LARGE = 4096;

export class FrameWriter {
  #pieces: Buffer[] = [];
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** Appends a DATA frame with the given pieces as payload, `length` bytes in total. */
  data(streamId: number, payload: readonly Buffer[], length: number, flags: { syn: boolean; fin: boolean }): void {
    this.#header(DATA, streamId, length, (flags.syn ? SYN : 0) | (flags.fin ? FIN : 0), HEADER_LENGTH);
    for (const piece of payload) this.#pieces.push(piece);
    this.#length += length;
  }

  reset(streamId: number, code: MuxError): void {
    this.#header(RST, streamId, 4, 0, HEADER_LENGTH + 4).writeUInt32BE(code, HEADER_LENGTH);
  }

  /** @param increment at least 1: an increment of 0 ends a session of the Go SDK */
  windowIncrement(streamId: number, increment: number): void {
    this.#header(WNDINC, streamId, 4, 0, HEADER_LENGTH + 4).writeUInt32BE(increment, HEADER_LENGTH);
  }

  writeTo(socket: Writable): void {
    const [first, ...others] = this.take();
    if (others.length === 0) return void socket.write(first);
    socket.cork();
    socket.write(first);
    for (const piece of others) socket.write(piece);
    socket.uncork();
  }

  /**
   * All frames collected so far, as buffers to write one after another. Large payloads are not copied: new buffers outside
   * V8's heap would make it spend a third of an upload's time in garbage collection.
   */
  take(): Buffer[] {
    const pieces = this.#pieces;
    this.#pieces = [];
    this.#length = 0;
    const joined: Buffer[] = [];
    let small = 0;
    for (let at = 0; at < pieces.length; at++) {
      const piece = pieces[at] as Buffer;
      if (piece.length < LARGE) continue;
      if (small < at) joined.push(join(pieces, small, at));
      joined.push(piece);
      small = at + 1;
    }
    if (small < pieces.length) joined.push(join(pieces, small, pieces.length));
    return joined;
  }

  #header(type: number, streamId: number, length: number, flags: number, size: number): Buffer {
    const frame = Buffer.allocUnsafe(size);
    frame.writeUInt32BE(length * 256 + type * 16 + flags, 0);
    frame.writeUInt32BE(streamId, 4);
    this.#pieces.push(frame);
    this.#length += size;
    return frame;
  }
}

function join(pieces: readonly Buffer[], from: number, to: number): Buffer {
  return to - from === 1 ? (pieces[from] as Buffer) : Buffer.concat(pieces.slice(from, to));
}

/** Bytes in the socket's buffer at which streams have to wait. */
const OUTPUT_HIGH_WATER = 262_144;

export interface Sender {
  readonly id: number;
  /** Whether it has so little to send that others need not wait for it. */
  readonly sendsLittle: boolean;
  /** Writes as much as the window allows; returns whether more could be sent right away. */
  flushInto(out: FrameWriter): boolean;
}

/** The streams of a connection that have something to send. Those with little go first. */
export class SendQueue {
  readonly #ready = new Set<Sender>();

  constructor(
    private readonly out: FrameWriter,
    private readonly socket: Duplex,
  ) {}

  add(channel: Sender): void {
    this.#ready.add(channel);
  }

  delete(channel: Sender): void {
    this.#ready.delete(channel);
  }

  /** Lets streams send until the socket has enough; returns whether the gateway had opened one of them. */
  send(): boolean {
    const little = this.#ready.size > 1 && this.#sendSome(true);
    return this.#sendSome(false) || little;
  }

  #sendSome(onlyLittle: boolean): boolean {
    let isData = false;
    const room = OUTPUT_HIGH_WATER - this.socket.writableLength;
    for (const channel of this.#ready) {
      if (this.out.length >= room) break;
      if (onlyLittle && !channel.sendsLittle) continue;
      this.#ready.delete(channel);
      if (channel.flushInto(this.out)) this.#ready.add(channel);
      isData ||= channel.id % 2 === 0;
    }
    return isData;
  }
}
