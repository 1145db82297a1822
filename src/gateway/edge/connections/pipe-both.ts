import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { resetConnection } from '../http/reset-connection.ts';

/** Pipes in both directions. The end of one stream ends the other; an error or a reset resets the other. */
export function pipeBoth(one: Duplex, other: Duplex): void {
  pipe(one, other);
  pipe(other, one);
}

function pipe(from: Duplex, to: Duplex): void {
  from.pipe(to);
  const reset = () => (to instanceof Socket ? resetConnection(to) : to.destroy());
  from.on('error', reset);
  from.on('close', () => {
    if (!from.readableEnded || !from.writableFinished) reset();
  });
}
