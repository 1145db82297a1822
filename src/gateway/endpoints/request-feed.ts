import type { RequestReport } from '../../agent-protocol/request-report.ts';
import { TokenBucket } from '../../lib/time/token-bucket.ts';

/** Takes lines of JSON, each with its line break. */
export interface ReportReader {
  /** @returns false when it takes no more until {@link ReportQueue.resume} is called */
  take(lines: string): boolean;
  /** Counts bytes that wait for it from now on, or no longer. */
  hold(bytes: number): void;
  end(): void;
}

const FLUSH_MS = 100;
/** Reported requests of one endpoint: 500 at once, then 100 a second. Nobody reads more, and each costs time. */
const RATE = { burst: 500, perMs: 0.1 };
/** Bytes that may wait for one reader; a report has about 400. */
const MAX_WAITING = 524_288;

/** Reports on their way to one reader. They never wait for it: beyond the limit, the oldest are dropped. */
export class ReportQueue {
  #lines: string[] = [];
  #bytes = 0;
  #dropped = 0;
  #timer: NodeJS.Timeout | null = null;
  #isFull = false;
  #closed = false;

  constructor(
    private readonly reader: ReportReader,
    private readonly onClosed: (queue: ReportQueue) => void,
    private readonly maxBytes = MAX_WAITING,
  ) {}

  push(report: RequestReport): void {
    if (this.#closed) return;
    const line = `${JSON.stringify(report)}\n`;
    let dropped = 0;
    let freed = 0;
    for (const { length } of this.#lines) {
      if (this.#bytes - freed + line.length <= this.maxBytes) break;
      freed += length;
      dropped += 1;
    }
    if (dropped > 0) this.#lines.splice(0, dropped);
    this.#dropped += dropped;
    this.#lines.push(line);
    this.#hold(line.length - freed);
    this.#flushSoon();
  }

  miss(): void {
    this.#dropped += 1;
    this.#flushSoon();
  }

  resume(): void {
    if (!this.#isFull) return;
    this.#isFull = false;
    if (this.#lines.length > 0 || this.#dropped > 0) this.#flush();
  }

  end(): void {
    this.reader.end();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#lines = [];
    this.#hold(-this.#bytes);
    this.onClosed(this);
  }

  #flushSoon(): void {
    if (!this.#isFull && !this.#closed) this.#timer ??= setTimeout(() => this.#flush(), FLUSH_MS).unref();
  }

  #flush(): void {
    this.#timer = null;
    const missing = this.#dropped > 0 ? `${JSON.stringify({ dropped: this.#dropped })}\n` : '';
    const text = missing + this.#lines.join('');
    this.#lines = [];
    this.#dropped = 0;
    this.#hold(-this.#bytes);
    this.#isFull = !this.reader.take(text);
  }

  #hold(bytes: number): void {
    this.#bytes += bytes;
    if (bytes !== 0) this.reader.hold(bytes);
  }
}

export class RequestFeed {
  readonly #queues = new Set<ReportQueue>();
  readonly #bucket = new TokenBucket(RATE, performance.now());

  /** @param onUnwatched called when the last one has left */
  constructor(private readonly onUnwatched: () => void = () => {}) {}

  /** @returns close it to end this */
  watch(reader: ReportReader): ReportQueue {
    const queue = new ReportQueue(reader, (closed) => {
      this.#queues.delete(closed);
      if (this.#queues.size === 0) this.onUnwatched();
    });
    this.#queues.add(queue);
    return queue;
  }

  /** Whether to report a request that begins now. Otherwise, it is only counted. */
  admits(): boolean {
    if (this.#bucket.tryTake(performance.now())) return true;
    for (const queue of this.#queues) queue.miss();
    return false;
  }

  publish(report: RequestReport): void {
    for (const queue of this.#queues) queue.push(report);
  }

  end(): void {
    for (const queue of [...this.#queues]) queue.end();
  }
}
