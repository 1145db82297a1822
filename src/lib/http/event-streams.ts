import type { ServerResponse } from 'node:http';
import { constants, createGzip, type Gzip } from 'node:zlib';
import type { Clock } from '../time/clock.ts';

/** Streams at a time. */
export const MAX_STREAMS = 32;
/** An event at least this often shows browsers and proxies that the connection is alive. */
export const SILENCE_MS = 10_000;

/** A reader that reads nothing is cut off; pages reconnect automatically. */
const MAX_UNREAD = 4 * 1024 * 1024;
/** Takes 32 KiB instead of 256: devices are small, and what repeats in events is near. */
const GZIP = { flush: constants.Z_SYNC_FLUSH, windowBits: 12, memLevel: 5, chunkSize: 4096 };
/** All browsers send it like this, without a weight. */
const ACCEPTS_GZIP = /(?:^|,)[ \t]*gzip[ \t]*(?:,|$)/i;

/** One open response. */
export class EventStream {
  readonly #gzip: Gzip | null;

  constructor(
    private readonly res: ServerResponse,
    isCompressed: boolean,
  ) {
    this.#gzip = isCompressed ? createGzip(GZIP) : null;
    if (!this.#gzip) return;
    res.setHeader('Content-Encoding', 'gzip');
    this.#gzip.on('error', () => res.destroy()).pipe(res);
    res.once('close', () => this.#gzip?.destroy());
  }

  /** Sends events at once, or cuts off a reader that has left too many unread. */
  send(events: string): void {
    const { res } = this;
    const gzip = this.#gzip;
    const unread = res.writableLength + (gzip ? gzip.writableLength + gzip.readableLength : 0);
    if (unread > MAX_UNREAD) res.destroy();
    else (gzip ?? res).write(events);
  }

  end(): void {
    (this.#gzip ?? this.res).end();
  }
}

interface Reader<Data> {
  stream: EventStream;
  data: Data;
  isAllowed: () => boolean;
}

/**
 * Responses with server-sent events (HTML Living Standard, section 9.2), each with data of the user. Without an open one,
 * nothing runs.
 */
export class EventStreams<Data = null> {
  readonly #open = new Map<ServerResponse, Reader<Data>>();
  #cancel: (() => void) | null = null;

  /**
   * @param tick called every `intervalMs` while a stream is open
   * @param isCompressible false where events have both secrets and text that others choose: the size of what is compressed
   * would reveal whether they are alike (BREACH)
   */
  constructor(
    private readonly clock: Pick<Clock, 'after'>,
    private readonly intervalMs: number,
    private readonly tick: () => void,
    private readonly isCompressible: boolean,
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
    const isCompressed = this.isCompressible && ACCEPTS_GZIP.test(String(res.req.headers['accept-encoding']));
    if (this.isCompressible) res.setHeader('Vary', 'Accept-Encoding');
    const stream = new EventStream(res, isCompressed);
    this.#open.set(res, { stream, data, isAllowed });
    res.once('close', () => this.#remove(res));
    stream.send(first);
    if (this.#cancel === null) this.#schedule();
  }

  /** The streams to write to. Those whose readers are no longer allowed to read end here. */
  *[Symbol.iterator](): Generator<[EventStream, Data]> {
    for (const [res, { stream, data, isAllowed }] of this.#open) {
      if (isAllowed()) yield [stream, data];
      else this.#end(res, stream);
    }
  }

  /** Ends all streams, which would otherwise delay the stop of a server. */
  stop(): void {
    for (const [res, { stream }] of this.#open) this.#end(res, stream);
  }

  #end(res: ServerResponse, stream: EventStream): void {
    this.#remove(res);
    stream.end();
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
