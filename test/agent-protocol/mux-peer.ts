import { EventEmitter, once } from 'node:events';
import type { Duplex } from 'node:stream';
import { FrameDecoder, type FrameHandler, FrameWriter, MuxError } from '../../src/agent-protocol/frames.ts';

export interface SeenFrame {
  kind: 'data' | 'reset' | 'credit' | 'goaway';
  id: number;
  payload: Buffer;
  syn: boolean;
  fin: boolean;
  increment: number;
}

const NOTHING: Omit<SeenFrame, 'kind' | 'id'> = { payload: Buffer.alloc(0), syn: false, fin: false, increment: 0 };

/** The other end of a connection, driven frame by frame by a test. */
export class MuxPeer extends EventEmitter<{ frame: [SeenFrame] }> implements FrameHandler {
  /** Every frame received, except credit for the unused stream 1. */
  readonly frames: SeenFrame[] = [];
  /** Number of frames without effect received. */
  kicks = 0;
  /** Sizes of the chunks received. */
  readonly chunks: number[] = [];
  readonly send = new FrameWriter();
  readonly socket: Duplex;
  #data: SeenFrame = { kind: 'data', id: 0, ...NOTHING };
  #pieces: Buffer[] = [];

  constructor(socket: Duplex) {
    super();
    this.socket = socket;
    const decoder = new FrameDecoder(this);
    socket.on('data', (chunk: Buffer) => {
      this.chunks.push(chunk.length);
      decoder.push(chunk);
    });
    socket.on('error', () => {});
  }

  /** Sends the frames collected in `send`. */
  flush(): void {
    this.socket.write(Buffer.concat(this.send.take()));
  }

  sendData(id: number, payload: Buffer | string, flags: { syn?: boolean; fin?: boolean } = {}): void {
    const bytes = Buffer.from(payload);
    this.send.data(id, [bytes], bytes.length, { syn: false, fin: false, ...flags });
    this.flush();
  }

  sendReset(id: number): void {
    this.send.reset(id, MuxError.cancelled);
    this.flush();
  }

  /** Waits until the frames seen so far satisfy the condition. */
  async until(condition: () => boolean): Promise<void> {
    while (!condition()) await once(this, 'frame');
  }

  /** Payload received on a stream so far. */
  received(id: number): Buffer {
    return Buffer.concat(this.frames.filter((one) => one.kind === 'data' && one.id === id).map((one) => one.payload));
  }

  onData(id: number, _length: number, syn: boolean): void {
    this.#data = { kind: 'data', id, ...NOTHING, syn };
    this.#pieces = [];
  }

  onPayload(piece: Buffer): void {
    this.#pieces.push(piece);
  }

  onDataEnd(fin: boolean): void {
    this.#see({ ...this.#data, payload: Buffer.concat(this.#pieces), fin });
  }

  onReset(id: number): void {
    this.#see({ kind: 'reset', id, ...NOTHING });
  }

  onWindowIncrement(id: number, increment: number): void {
    if (id === 1) this.kicks += 1;
    else this.#see({ kind: 'credit', id, ...NOTHING, increment });
    this.emit('frame', { kind: 'credit', id, ...NOTHING, increment });
  }

  onGoAway(): void {
    this.#see({ kind: 'goaway', id: 0, ...NOTHING });
  }

  #see(frame: SeenFrame): void {
    this.frames.push(frame);
    this.emit('frame', frame);
  }
}
