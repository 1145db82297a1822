import { EventEmitter } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { gunzipSync } from 'node:zlib';
import { expect, it } from 'vitest';
import type { ClientResponse } from '../../../../src/gateway/edge/http/client-message.ts';
import { encoderFor } from '../../../../src/gateway/edge/proxy/response-writer.ts';
import { MemoryBudget } from '../../../../src/lib/memory-budget.ts';
import { ProcessorTime } from '../../../../src/traffic-policy/state/processor-time.ts';
import { SteeredClock } from '../../../support/steered-clock.ts';

/** A client that takes everything. */
class Sink extends EventEmitter {
  readonly pieces: Buffer[] = [];
  ended = false;
  write(piece: Buffer): boolean {
    this.pieces.push(piece);
    return true;
  }
  end(): void {
    this.ended = true;
  }
}

it('the encoder waits while the processor time for compression is used up, loses nothing, and is counted until its end', async () => {
  const clock = new SteeredClock();
  const time = new ProcessorTime(0.25, clock);
  const memory = new MemoryBudget(1_048_576);
  const sink = new Sink();
  const encoder = encoderFor(sink as unknown as ClientResponse, { encoding: 'gzip', time, memory, bytes: 300_000 });
  const pieces = Array.from({ length: 500 }, (_, at) => Buffer.alloc(65_536, `piece ${at} `));
  const written = (async () => {
    for (const piece of pieces) await new Promise<void>((resolve) => void encoder.write(piece, () => resolve()));
    encoder.end();
  })();
  expect(memory.room).toBe(748_576);
  await expect.poll(() => clock.sleeping).toBeGreaterThan(0);
  expect(time.isSpent).toBe(true);
  expect(sink.ended).toBe(false);
  // However long the compression takes on a busy machine.
  while (!sink.ended) {
    await clock.advance(1000);
    await delay(20);
  }
  await written;
  await expect.poll(() => memory.room).toBe(1_048_576);
  expect(gunzipSync(Buffer.concat(sink.pieces)).equals(Buffer.concat(pieces))).toBe(true);
});
