import type { ServerResponse } from 'node:http';
import type { Clock } from '../time/clock.ts';

/** Streams at a time. */
export const MAX_STREAMS = 32;
/** An event at least this often shows browsers and proxies that the connection is alive. */
export const SILENCE_MS = 10_000;

interface Stream<Data> {
  data: Data;
  isAllowed: () => boolean;
}

/**
 * Responses with server-sent events (HTML Living Standard, section 9.2), each with data of the user. Without an open one,
 * nothing runs.
 */
export class EventStreams<Data = null> {
  readonly #open = new Map<ServerResponse, Stream<Data>>();
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
   * @param isAllowed whether its reader may still read it; asked before every event
   */
  add(res: ServerResponse, data: Data, first: string, isAllowed: () => boolean): void {
    res.setHeader('Content-Type', 'text/event-stream');
    res.setHeader('Cache-Control', 'no-store');
    res.setHeader('X-Accel-Buffering', 'no');
    this.#open.set(res, { data, isAllowed });
    res.once('close', () => this.#remove(res));
    res.write(first);
    if (this.#cancel === null) this.#schedule();
  }

  /** The streams to write to. Those whose readers are no longer allowed to read end here. */
  *[Symbol.iterator](): Generator<[ServerResponse, Data]> {
    for (const [res, { data, isAllowed }] of this.#open) {
      if (isAllowed()) yield [res, data];
      else this.#end(res);
    }
  }

  /** Ends all streams, which would otherwise delay the stop of a server. */
  stop(): void {
    for (const res of this.#open.keys()) this.#end(res);
  }

  #end(res: ServerResponse): void {
    this.#remove(res);
    res.end();
  }

  #remove(res: ServerResponse): void {
    this.#open.delete(res);
    if (this.#open.size === 0) this.#stopTimer();
  }

  #schedule(): void {
    this.#cancel = this.clock.after(this.intervalMs, () => {
      this.#schedule();
      // Ends those whose readers are no longer allowed to read, even without news.
      Array.from(this);
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
