import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Bytes of buffers between two collections: of four times as many, too many had to wait for the old part again. */
const STEP = 4 * 1_048_576;

let passed = 0;
let collect: (() => void) | null = null;

/**
 * Has the buffers of bulk transfers collected while they are young; to be called at the start of a process that passes
 * them on.
 *
 * The memory of a buffer lies outside of V8's heap. Once the heap's young part has grown large, as it does with many
 * small requests, gigabytes of buffers come and go before that part is full. V8 then looks through all of its old part
 * instead, again and again, and takes the buffers for old objects from then on: that takes twice the processor time of
 * the transfer itself (Node 20.20, measured).
 */
export function collectBuffersYoung(): void {
  setFlagsFromString('--no-allocation-site-pretenuring');
  setFlagsFromString('--expose-gc');
  const gc: unknown = runInNewContext('globalThis.gc');
  setFlagsFromString('--no-expose-gc');
  if (typeof gc === 'function') collect = () => void gc({ type: 'minor' });
}

/** To be told of buffers that pass through. */
export function buffersPassed(bytes: number): void {
  passed += bytes;
  if (passed < STEP) return;
  passed = 0;
  collect?.();
}
