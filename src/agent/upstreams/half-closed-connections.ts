import type { Socket } from 'node:net';

const SWEEP_MS = 1000;
/** Milliseconds without a byte after which an upstream is not waited for. */
const PATIENCE_MS = 5 * 60_000;
/** The same for those beyond this number: they take places that other clients need. */
const MAX_WAITING = 64;
const CROWDED_MS = 1000;

interface HalfClosed {
  server: Socket;
  /** Bytes that have passed, and when the last ones did. */
  moved: number;
  movedAt: number;
}

/**
 * The connections of all relays whose client has ended its side. It destroys those whose upstream neither ends its own nor
 * sends or reads anything. The SDK cannot tell its agent whether such a client has left or waits, and keeps a place of the
 * session for it as long as the upstream likes.
 */
export class HalfClosedConnections {
  readonly #waiting = new Map<Socket, HalfClosed>();
  #timer: NodeJS.Timeout | null = null;

  constructor(private readonly now: () => number = () => performance.now()) {}

  /** The client of this connection to an upstream has ended its side. */
  add(server: Socket): void {
    if (server.destroyed) return;
    this.#waiting.set(server, { server, moved: movedOf(server), movedAt: this.now() });
    server.once('close', () => this.#waiting.delete(server));
    this.#timer ??= setInterval(() => this.sweep(), SWEEP_MS).unref();
  }

  /** Destroys those that have been silent for too long; called every second. */
  sweep(): void {
    const now = this.now();
    for (const one of this.#waiting.values()) {
      const moved = movedOf(one.server);
      if (moved !== one.moved) Object.assign(one, { moved, movedAt: now });
    }
    for (const { server, movedAt } of [...this.#waiting.values()].sort((a, b) => a.movedAt - b.movedAt)) {
      if (now - movedAt < (this.#waiting.size > MAX_WAITING ? CROWDED_MS : PATIENCE_MS)) break;
      this.#waiting.delete(server);
      server.destroy();
    }
    if (this.#waiting.size > 0 || this.#timer === null) return;
    clearInterval(this.#timer);
    this.#timer = null;
  }
}

/** Bytes received, and sent as far as the upstream reads. */
function movedOf(server: Socket): number {
  return server.bytesRead + server.bytesWritten - server.writableLength;
}
