import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { resetConnection } from '../http/reset-connection.ts';

/** Pipes both ways; an end is passed on as an end, a break as a break. */
export function pipeBoth(one: Duplex, other: Duplex): void {
  passOn(one, other);
  passOn(other, one);
}

function passOn(from: Duplex, to: Duplex): void {
  from.pipe(to);
  const breakOff = () => (to instanceof Socket ? resetConnection(to) : to.destroy());
  from.on('error', breakOff);
  from.on('close', () => {
    if (!from.readableEnded || !from.writableFinished) breakOff();
  });
}
