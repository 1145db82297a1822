import type { Socket } from 'node:net';
import { clientNetwork } from '../../../../lib/network/ip-address.ts';
import { runInTurn } from '../../../../lib/time/fair-turns.ts';
import { ByteBlocks } from '../../http/header-block.ts';

/** Bytes of further requests that are read while a response is pending. Reading on shows when the client leaves. */
const MAX_BYTES = 16_384;

/**
 * What a client has sent and the connection cannot process yet: it waits for the response to the current request, for the
 * client to read the last one, or for its turn. Too much of it pauses the socket.
 */
export class PostponedInput {
  readonly #bytes = new ByteBlocks();
  #continues = false;
  /** When there was too much to read on, in milliseconds of `performance.now()`; infinite while there is not. */
  fullSince = Number.POSITIVE_INFINITY;
  readonly #onTurn = (): void => {
    this.#continues = false;
    const bytes = this.#bytes.joined();
    this.#bytes.clear();
    if (this.fullSince < Number.POSITIVE_INFINITY) this.socket.resume();
    this.fullSince = Number.POSITIVE_INFINITY;
    this.process(bytes);
  };

  /** @param process continues with the bytes, in a turn of their own; with none when there was only room to wait for */
  constructor(
    private readonly socket: Socket,
    private readonly process: (bytes: Buffer) => void,
  ) {}

  get length(): number {
    return this.#bytes.length;
  }

  get held(): number {
    return this.#bytes.held;
  }

  add(bytes: Buffer): void {
    this.#bytes.add(bytes);
    if (this.#bytes.length <= MAX_BYTES) return;
    this.fullSince = Math.min(this.fullSince, performance.now());
    this.socket.pause();
  }

  /** Keeps bytes in the socket for another protocol, which may have to see the end of the client's side behind them. */
  leaveInSocket(bytes: Buffer): void {
    this.fullSince = Math.min(this.fullSince, performance.now());
    this.socket.pause().unshift(bytes);
  }

  /** Processes the bytes in a later turn of the event loop, of which a client's network has a share. */
  continue(): void {
    if (this.#continues) return;
    this.#continues = true;
    runInTurn(clientNetwork(this.socket.remoteAddress ?? ''), this.#onTurn);
  }
}
