import type { FairMemory } from '../../lib/fair-memory.ts';

export type ContentEncoding = 'gzip' | 'deflate' | 'br';

const KIB = 1024;

/** Bytes that an encoder takes outside of the JavaScript heap after its first 64 KiB. Measured with Node.js 24. */
const BYTES: Readonly<Record<ContentEncoding, number>> = { gzip: 272 * KIB, deflate: 272 * KIB, br: 704 * KIB };

/** Counts the encoders of compress-response of one authtoken. */
export class EncoderMemory {
  /**
   * @param memory for the encoders of all authtokens
   * @param owner id of the authtoken
   */
  constructor(
    private readonly memory: FairMemory,
    private readonly owner: string,
  ) {}

  hasRoomFor(encoding: ContentEncoding): boolean {
    return this.memory.hasRoom(this.owner, BYTES[encoding]);
  }

  /**
   * Counts an encoder.
   *
   * @returns a function to call once when it is closed
   */
  take(encoding: ContentEncoding): () => void {
    this.memory.take(this.owner, BYTES[encoding]);
    return () => this.memory.release(this.owner, BYTES[encoding]);
  }
}
