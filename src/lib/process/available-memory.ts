import { totalmem } from 'node:os';
import { getHeapStatistics } from 'node:v8';

/** Bytes of the machine, or of the container when that has fewer. */
export function availableMemory(): number {
  // 0 or more than the machine has: there is no limit.
  return Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY);
}

/** Bytes that JavaScript objects may take. */
export function availableHeap(): number {
  return Math.min(availableMemory(), getHeapStatistics().heap_size_limit);
}
