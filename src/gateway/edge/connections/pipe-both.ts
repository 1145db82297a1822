import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { resetConnection } from '../http/reset-connection.ts';

/** Milliseconds without a byte of the upstream after which a client that has ended its side is not served any longer. */
const HALF_CLOSED_MS = 5 * 60_000;
/** The same once the client's connection has closed. Meanwhile, the upstream reads what the client has sent. */
const LEFT_MS = 30_000;

/**
 * Pipes in both directions. The end of one stream ends the other; an error or a reset resets the other. An upstream that
 * never ends its side does not keep its stream.
 */
export function pipeBoth(client: Duplex, upstream: Duplex): void {
  pipe(client, upstream);
  pipe(upstream, client);
  client.once('end', () => {
    if (upstream.readableEnded) return;
    const timer = endLater(upstream, HALF_CLOSED_MS);
    upstream.on('data', () => timer.refresh());
  });
  client.once('close', () => upstream.readableEnded || endLater(upstream, LEFT_MS));
}

function pipe(from: Duplex, to: Duplex): void {
  from.pipe(to);
  const reset = () => (to instanceof Socket ? resetConnection(to) : to.destroy());
  from.on('error', reset);
  from.on('close', () => {
    if (!from.readableEnded || !from.writableFinished) reset();
  });
}

function endLater(upstream: Duplex, ms: number): NodeJS.Timeout {
  const timer = setTimeout(() => upstream.destroy(), ms).unref();
  const stop = () => clearTimeout(timer);
  upstream.once('end', stop).once('close', stop);
  return timer;
}
