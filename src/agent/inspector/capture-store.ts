import { type CapturedMessage, Exchange, type ExchangeMessage } from './exchange.ts';
import type { RequestLine, StatusLine } from './parsing/message-head.ts';
import type { PendingMemory } from './parsing/pending-bytes.ts';

/** Bytes that the captured exchanges of all tunnels take together, unfinished ones included. */
export const MAX_HELD = 16 * 1024 * 1024;
/** The share of it that heads and messages may take that have not arrived whole. */
const MAX_PENDING = 4 * 1024 * 1024;
/** What an exchange takes besides its heads and bodies, generously: objects, numbers, places in lists. */
const EXCHANGE_OVERHEAD = 1_024;
const MESSAGE_OVERHEAD = 256;
const MAX_MESSAGES = 1_000;
const MAX_MESSAGE_BYTES = 16 * 1024;

type NewMessage = Omit<ExchangeMessage, 'number' | 'at'>;

/** The captured exchanges of all tunnels, in memory: the oldest give way to new ones. */
export class CaptureStore implements PendingMemory {
  /** By id, oldest first. */
  readonly #exchanges = new Map<number, Exchange>();
  readonly #watchers = new Set<(exchange: Exchange) => void>();
  #lastId = 0;
  /** No exchange has a lower id. */
  #oldestId = 1;
  #held = 0;
  #pending = 0;

  /** @param maxBytes see {@link MAX_HELD}; less in tests */
  constructor(private readonly maxBytes = MAX_HELD) {}

  /** Bytes held now. */
  get held(): number {
    return this.#held + this.#pending;
  }

  get max(): number {
    return this.maxBytes;
  }

  hold(bytes: number): boolean {
    if (bytes > 0 && this.#pending + bytes > Math.min(MAX_PENDING, this.maxBytes / 4)) return false;
    this.#pending += bytes;
    this.#makeRoom();
    return true;
  }

  add(tunnelId: string, request: CapturedMessage<RequestLine>, replayOf: number | null): Exchange {
    const exchange = new Exchange(++this.#lastId, tunnelId, request, replayOf);
    this.#exchanges.set(exchange.id, exchange);
    this.#count(exchange, EXCHANGE_OVERHEAD + request.head.length);
    this.changed(exchange);
    return exchange;
  }

  takeResponse(exchange: Exchange, response: CapturedMessage<StatusLine>): void {
    exchange.response = response;
    if (exchange.isHeld) this.#count(exchange, response.head.length);
    else response.head = '';
    this.changed(exchange);
  }

  takeBody(exchange: Exchange, message: CapturedMessage<unknown>, bytes: Buffer): void {
    if (exchange.isHeld) this.#count(exchange, message.takeBody(bytes));
    else message.bodySize += bytes.length;
    this.changed(exchange);
  }

  takeTrailers(exchange: Exchange, message: CapturedMessage<unknown>, trailers: string): void {
    if (!exchange.isHeld || trailers.length <= 2) return;
    message.trailers = trailers;
    this.#count(exchange, trailers.length);
  }

  takeMessage(exchange: Exchange, message: NewMessage): void {
    exchange.messageCount++;
    this.changed(exchange);
    if (!exchange.isHeld) return;
    exchange.messages ??= [];
    const oldest = exchange.messages.length >= MAX_MESSAGES ? exchange.messages.shift() : undefined;
    // Copied, so that nothing larger is kept than what is counted.
    const data = Buffer.from(message.data.subarray(0, MAX_MESSAGE_BYTES));
    const truncated = message.truncated || data.length < message.data.length;
    exchange.messages.push({ ...message, data, truncated, number: exchange.messageCount, at: Date.now() });
    const freed = oldest ? MESSAGE_OVERHEAD + oldest.data.length : 0;
    this.#count(exchange, MESSAGE_OVERHEAD + data.length - freed);
  }

  /** Tells those who watch that an exchange has changed. */
  changed(exchange: Exchange): void {
    if (this.#watchers.size === 0) return;
    for (const watcher of this.#watchers) watcher(exchange);
  }

  /**
   * Calls `watcher` with every exchange that is new, has changed or was forgotten.
   *
   * @returns stops that
   */
  watch(watcher: (exchange: Exchange) => void): () => void {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  find(tunnelId: string, id: number): Exchange | null {
    const exchange = this.#exchanges.get(id);
    return exchange?.tunnelId === tunnelId ? exchange : null;
  }

  /** Those of one tunnel, newest first. */
  list(tunnelId: string): Exchange[] {
    return [...this.#exchanges.values()].filter((exchange) => exchange.tunnelId === tunnelId).reverse();
  }

  countOf(tunnelId: string): number {
    let count = 0;
    for (const exchange of this.#exchanges.values()) if (exchange.tunnelId === tunnelId) count++;
    return count;
  }

  /** Forgets the exchanges of one tunnel. */
  clear(tunnelId: string): void {
    for (const exchange of this.list(tunnelId)) this.#forget(exchange);
  }

  #count(exchange: Exchange, bytes: number): void {
    if (bytes === 0) return;
    exchange.held += bytes;
    this.#held += bytes;
    if (bytes > 0) this.#makeRoom();
  }

  #makeRoom(): void {
    // By number: a map keeps the places of what was deleted for a while, and would step over all of them each time.
    while (this.held > this.maxBytes && this.#oldestId <= this.#lastId) {
      const oldest = this.#exchanges.get(this.#oldestId++);
      if (oldest) this.#forget(oldest);
    }
  }

  #forget(exchange: Exchange): void {
    this.#exchanges.delete(exchange.id);
    this.#held -= exchange.held;
    exchange.clear();
    this.changed(exchange);
  }
}
