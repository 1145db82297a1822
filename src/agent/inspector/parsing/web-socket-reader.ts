import { constants, inflateRawSync } from 'node:zlib';
import {
  type Frame,
  FrameReader,
  MAX_CONTROL,
  Opcode,
  WebSocketProtocolError,
} from '../../../lib/http/web-socket-frames.ts';
import { PendingBytes, type PendingMemory } from './growing-bytes.ts';
import { ParseFailure } from './message-head.ts';

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
  /** Whether its payload is held whole. */
  complete: boolean;
}

/** More of a message is not kept, compressed or not. */
const MAX_MESSAGE = 64 * 1024;
const NO_DATA = Buffer.alloc(0);

/** Reads the messages of a WebSocket that pass in one direction. */
export class WebSocketReader {
  readonly #frames: FrameReader;
  #opcode: number = Opcode.continuation;
  #message: Message | null = null;
  readonly #payload: PendingBytes;
  /** Of a control frame, which may come between the frames of a message. */
  readonly #control: PendingBytes;

  /** @param inflater null when the connection does not compress */
  constructor(
    private readonly inflater: WebSocketInflater | null,
    memory: PendingMemory,
    private readonly onMessage: (message: WebSocketMessage) => void,
  ) {
    this.#payload = new PendingBytes(MAX_MESSAGE, memory);
    this.#control = new PendingBytes(MAX_CONTROL, memory);
    const rules = { masked: null, compression: inflater !== null };
    this.#frames = new FrameReader(rules, {
      onFrame: (frame) => this.#frameBegins(frame),
      isWanted: () => this.#isControl || this.#message?.complete === true,
      onPayload: (piece) => this.#keep(piece),
      onFrameEnd: (frame) => this.#frameEnds(frame),
    });
  }

  /** @throws {ParseFailure} for what is no WebSocket */
  read(bytes: Buffer): void {
    try {
      this.#frames.read(bytes);
    } catch (error) {
      if (error instanceof WebSocketProtocolError) throw new ParseFailure('not a WebSocket');
      throw error;
    }
  }

  /** Gives back the memory of a message that will not end. */
  release(): void {
    this.#payload.clear();
    this.#control.clear();
    this.inflater?.release();
  }

  get #isControl(): boolean {
    return this.#opcode >= Opcode.close;
  }

  #frameBegins({ opcode, isCompressed, length }: Frame): void {
    this.#opcode = opcode;
    if (this.#isControl) return;
    if (opcode !== Opcode.continuation) {
      const type = opcode === Opcode.text ? 'text' : 'binary';
      this.#message = { type, compressed: isCompressed, size: 0, complete: true };
    }
    if (this.#message) this.#message.size += length;
  }

  #keep(piece: Buffer): void {
    if (this.#isControl) return void this.#control.append(piece);
    const taken = piece.subarray(0, MAX_MESSAGE - this.#payload.length);
    const isHeld = taken.length === 0 || this.#payload.append(taken);
    if (this.#message && !(isHeld && taken.length === piece.length)) this.#message.complete = false;
  }

  #frameEnds({ opcode, isFinal }: Frame): void {
    if (opcode === Opcode.close) {
      const data = Buffer.from(this.#control.bytes);
      this.onMessage({ type: 'close', size: data.length, data, truncated: false, error: null });
    }
    if (this.#isControl) this.#control.clear();
    else if (isFinal) this.#messageEnds();
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

export interface Inflated {
  /** As it was sent when it could not be decompressed. */
  data: Buffer;
  truncated: boolean;
  error: string | null;
}

const WINDOW = 32 * 1024;
/** Larger messages end the decoding of their direction: later ones may refer to what they held. */
const MAX_INFLATED = 256 * 1024;
/** What the sender leaves out at the end of each message (RFC 7692, section 7.2.1). */
const TAIL = Buffer.from([0x00, 0x00, 0xff, 0xff]);

/** Decompresses the messages of one direction of a WebSocket with permessage-deflate (RFC 7692). */
export class WebSocketInflater {
  /** The end of what was decompressed, to which later messages may refer. */
  #window = NO_DATA;
  #failure: string | null = null;
  #held = 0;

  /**
   * @param keepsContext whether messages may refer to earlier ones
   * @param hasTime whether there is processor time for a further one
   */
  constructor(
    private readonly keepsContext: boolean,
    private readonly memory: PendingMemory,
    private readonly hasTime: () => boolean,
  ) {}

  /** @param data null for a message that was too large to keep */
  inflate(data: Buffer | null): Inflated {
    if (this.#failure !== null) return undecoded(data, this.#failure);
    if (data === null) return this.#fail(data, 'too large to decompress');
    if (!this.hasTime()) return this.#fail(data, 'not decompressed: capturing takes too much processor time');
    try {
      const inflated = inflateRawSync(Buffer.concat([data, TAIL]), {
        finishFlush: constants.Z_SYNC_FLUSH,
        maxOutputLength: MAX_INFLATED,
        ...(this.#window.length > 0 && { dictionary: this.#window }),
      });
      if (this.keepsContext) this.#remember(inflated);
      return { data: inflated, truncated: false, error: null };
    } catch {
      return this.#fail(data, 'cannot be decompressed');
    }
  }

  release(): void {
    this.memory.release(this.#held);
    this.#held = 0;
    this.#window = NO_DATA;
  }

  #remember(inflated: Buffer): void {
    if (this.#held === 0) {
      if (!this.memory.tryReserve(WINDOW)) {
        this.#fail(null, 'too many compressed connections to decompress all');
        return;
      }
      this.#held = WINDOW;
    }
    const joined = inflated.length >= WINDOW ? inflated : Buffer.concat([this.#window, inflated]);
    this.#window = Buffer.from(joined.subarray(Math.max(0, joined.length - WINDOW)));
  }

  /** Without context, each message stands alone; with it, none can be read after one that was not. */
  #fail(data: Buffer | null, reason: string): Inflated {
    if (this.keepsContext) {
      this.#failure = reason;
      this.release();
    }
    return undecoded(data, reason);
  }
}

function undecoded(data: Buffer | null, error: string): Inflated {
  return { data: data ?? NO_DATA, truncated: data === null, error };
}
