import type { ServerResponse } from 'node:http';
import type { Clock } from '../time/clock.ts';

/** Streams at a time. */
export const MAX_STREAMS = 32;
/** An event at least this often shows browsers and proxies that the connection is alive. */
export const SILENCE_MS = 10_000;

/**
 * Responses with server-sent events (HTML Living Standard, section 9.2), each with data of the user. Without an open one,
 * nothing runs.
 */
export class EventStreams<Data = null> {
  readonly #open = new Map<ServerResponse, Data>();
  #cancel: (() => void) | null = null;

  /** @param tick called every `intervalMs` while a stream is open */
  constructor(
    private readonly clock: Pick<Clock, 'after'>,
    private readonly intervalMs: number,
    private readonly tick: () => void,
  ) {}

  get isFull(): boolean {
    return this.#open.size >= MAX_STREAMS;
  }

  /**
   * Starts a stream.
   *
   * @param first its first event, from {@link eventText}
   */
  add(res: ServerResponse, data: Data, first: string): void {
    res.setHeader('Content-Type', 'text/event-stream');
    res.setHeader('Cache-Control', 'no-store');
    res.setHeader('X-Accel-Buffering', 'no');
    this.#open.set(res, data);
    res.once('close', () => this.#remove(res));
    res.write(first);
    if (this.#cancel === null) this.#schedule();
  }

  [Symbol.iterator](): Iterator<[ServerResponse, Data]> {
    return this.#open.entries();
  }

  /** Ends all streams, which would otherwise delay the stop of a server. */
  stop(): void {
    for (const res of this.#open.keys()) res.end();
    this.#open.clear();
    this.#stopTimer();
  }

  #remove(res: ServerResponse): void {
    this.#open.delete(res);
    if (this.#open.size === 0) this.#stopTimer();
  }

  #schedule(): void {
    this.#cancel = this.clock.after(this.intervalMs, () => {
      this.#schedule();
      this.tick();
    });
  }

  #stopTimer(): void {
    this.#cancel?.();
    this.#cancel = null;
  }
}

/** One event as it is sent. */
export function eventText(name: string, data: object): string {
  return `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}
