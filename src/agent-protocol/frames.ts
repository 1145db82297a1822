/** Frame types of muxado: bits 7..4 of the first word of a header. */
const RST = 0;
const DATA = 1;
const WNDINC = 2;
const GOAWAY = 3;

/** Flags of a DATA frame: bits 3..0 of the first word. */
const FIN = 0x1;
const SYN = 0x2;

const HEADER_LENGTH = 8;
const ID_MASK = 0x7fffffff;

/** Error codes that RST and GOAWAY frames carry. */
export const MuxError = {
  none: 0,
  protocol: 1,
  streamClosed: 4,
  cancelled: 6,
} as const;
export type MuxError = (typeof MuxError)[keyof typeof MuxError];

/** The peer broke the framing; nothing that follows on the connection can be trusted. */
export class ProtocolViolation extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'ProtocolViolation';
  }
}

/** What a {@link FrameDecoder} found. A DATA frame is reported as one header, its payload in pieces, one end. */
export interface FrameHandler {
  /** @param length bytes of payload that will follow */
  onData(streamId: number, length: number, syn: boolean): void;
  /** A piece of the payload of the DATA frame announced last; never empty. */
  onPayload(piece: Buffer): void;
  /** The DATA frame announced last is complete. */
  onDataEnd(fin: boolean): void;
  onReset(streamId: number): void;
  onWindowIncrement(streamId: number, increment: number): void;
  onGoAway(): void;
}

/**
 * Decodes the frames of one direction of a connection from chunks of any size. Payload is handed on as it
 * arrives, uncopied, so a frame of any length costs no memory here.
 */
export class FrameDecoder {
  readonly #handler: FrameHandler;
  /** Bytes seen of the current header, and of the one word that follows it in RST and WNDINC. */
  #seen = 0;
  #first = 0;
  #id = 0;
  #value = 0;
  #payloadLeft = 0;
  #inPayload = false;
  #ended = false;

  constructor(handler: FrameHandler) {
    this.#handler = handler;
  }

  /**
   * Takes the next bytes from the peer.
   *
   * @throws {ProtocolViolation} when they cannot be a frame; the decoder is of no use afterwards
   */
  push(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length && !this.#ended) {
      if (this.#inPayload) {
        const end = Math.min(chunk.length, at + this.#payloadLeft);
        this.#payloadLeft -= end - at;
        this.#handler.onPayload(chunk.subarray(at, end));
        at = end;
        if (this.#payloadLeft === 0) this.#endData();
      } else {
        this.#takeHeaderByte(chunk[at++] as number);
      }
    }
  }

  /** Ignores everything from here on. */
  stop(): void {
    this.#ended = true;
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
      // The Rust SDK announces a length that is 8 too small, so what follows cannot be parsed; nor does it matter.
      this.stop();
      this.#handler.onGoAway();
      return;
    }
    if (type > GOAWAY) throw new ProtocolViolation(`unknown frame type ${type}`);
    if (this.#id === 0) throw new ProtocolViolation('frame for stream 0');
    if (type === DATA) {
      this.#handler.onData(this.#id, length, (this.#first & SYN) !== 0);
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
    this.#handler.onDataEnd((this.#first & FIN) !== 0);
  }

  #takeControl(): void {
    this.#seen = 0;
    if (((this.#first >>> 4) & 0xf) === RST) this.#handler.onReset(this.#id);
    else this.#handler.onWindowIncrement(this.#id, this.#value & ID_MASK);
  }
}

/** Pieces of at least this size are handed on as they are; joining them would cost more than it saves. */
const LARGE = 4096;

/** Collects the frames that leave together. */
export class FrameWriter {
  #pieces: Buffer[] = [];
  #length = 0;

  /** Bytes collected since the last {@link take}. */
  get length(): number {
    return this.#length;
  }

  /** Appends a DATA frame whose payload is the given pieces, `length` bytes in all. */
  data(streamId: number, payload: readonly Buffer[], length: number, flags: { syn: boolean; fin: boolean }): void {
    this.#header(DATA, streamId, length, (flags.syn ? SYN : 0) | (flags.fin ? FIN : 0), HEADER_LENGTH);
    for (const piece of payload) this.#pieces.push(piece);
    this.#length += length;
  }

  reset(streamId: number, code: MuxError): void {
    this.#header(RST, streamId, 4, 0, HEADER_LENGTH + 4).writeUInt32BE(code, HEADER_LENGTH);
  }

  /** @param increment at least 1: an increment of 0 kills a session of the Go SDK */
  windowIncrement(streamId: number, increment: number): void {
    this.#header(WNDINC, streamId, 4, 0, HEADER_LENGTH + 4).writeUInt32BE(increment, HEADER_LENGTH);
  }

  /**
   * Hands over everything collected, and starts anew. Copying the payload of an upload would have V8 collect garbage
   * for a third of the time: buffers outside of its heap drive it to look through all of that.
   *
   * @returns buffers to be written one after another
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

  /** Appends a buffer of `size` bytes that starts with the header, for the caller to fill up. */
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
