import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { SharedRate } from '../../../lib/bandwidth.ts';
import type { ClientBandwidth } from '../../../traffic-policy/policy-subjects.ts';
import type { GatewayEndpoint } from '../../endpoints/online-endpoint.ts';
import { resetConnection } from '../http/error-response.ts';
import { LimitedStream } from './limited-stream.ts';

interface Closable {
  once(event: 'close', listener: () => void): unknown;
}

/** The open connections and requests that policies have forwarded: they end when an endpoint on their way goes offline. */
export class OpenConnections {
  readonly #open = new Map<GatewayEndpoint, Set<() => void>>();
  /** For connections that are added after the removal. */
  readonly #removed = new WeakSet<GatewayEndpoint>();

  /** @param end called at once when one of the endpoints is offline already */
  add(through: readonly GatewayEndpoint[], connection: Closable, end: () => void): void {
    if (through.some((endpoint) => this.#removed.has(endpoint))) {
      end();
      return;
    }
    for (const endpoint of through) {
      const ends = this.#open.get(endpoint) ?? new Set();
      this.#open.set(endpoint, ends.add(end));
      connection.once('close', () => {
        if (ends.delete(end) && ends.size === 0) this.#open.delete(endpoint);
      });
    }
  }

  remove(endpoint: GatewayEndpoint): void {
    this.#removed.add(endpoint);
    const ends = this.#open.get(endpoint) ?? [];
    this.#open.delete(endpoint);
    for (const end of ends) end();
  }
}

/** Milliseconds without a byte of the upstream after which a client that has ended its side is not served any longer. */
const HALF_CLOSED_MS = 5 * 60_000;
/** The same once the client's connection has closed. Meanwhile, the upstream reads what the client has sent. */
const LEFT_MS = 30_000;

/**
 * Pipes in both directions: an end ends the other side, an error or reset resets it; an upstream that never ends is cut.
 *
 * @param bandwidth what the connection shares with others; omitted: no limit
 * @returns leaves both sides as they are
 */
export function pipeBoth(client: Duplex, upstream: Duplex, bandwidth?: ClientBandwidth): () => void {
  const stops = [pipe(client, upstream, bandwidth?.down ?? null), pipe(upstream, client, bandwidth?.up ?? null)];
  client.once('end', () => {
    if (upstream.readableEnded) return;
    const timer = endLater(upstream, HALF_CLOSED_MS);
    upstream.on('data', () => timer.refresh());
  });
  client.once('close', () => upstream.readableEnded || endLater(upstream, LEFT_MS));
  return () => {
    for (const stop of stops) stop();
  };
}

function pipe(from: Duplex, to: Duplex, rate: SharedRate | null): () => void {
  const paced = rate === null ? null : new LimitedStream(rate);
  const first = paced ?? to;
  from.pipe(first);
  paced?.pipe(to);
  to.once('close', () => paced?.destroy());
  const reset = () => (to instanceof Socket ? resetConnection(to) : to.destroy());
  const closed = () => {
    if (!from.readableEnded || !from.writableFinished) reset();
  };
  from.on('error', reset);
  from.on('close', closed);
  return () => from.unpipe(first).off('error', reset).off('close', closed);
}

function endLater(upstream: Duplex, ms: number): NodeJS.Timeout {
  const timer = setTimeout(() => upstream.destroy(), ms).unref();
  const stop = () => clearTimeout(timer);
  upstream.once('end', stop).once('close', stop);
  return timer;
}
