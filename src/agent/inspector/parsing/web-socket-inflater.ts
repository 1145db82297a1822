import { constants, inflateRawSync } from 'node:zlib';
import type { PendingMemory } from './growing-bytes.ts';

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
const NO_DATA = Buffer.alloc(0);

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
