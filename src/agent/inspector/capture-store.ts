import type { RequestReport } from '../../agent-protocol/request-report.ts';
import { MemoryBudget } from '../../lib/memory-budget.ts';
import { CapturedExchange, type CapturedMessage, type ExchangeMessage } from './captured-exchange.ts';
import { PackedExchanges } from './packed-exchanges.ts';
import type { PendingMemory } from './parsing/growing-bytes.ts';
import type { RequestLine, StatusLine } from './parsing/message-head.ts';

/** Bytes that the captured exchanges of all tunnels take together, unfinished ones included. */
export const MAX_HELD = 16 * 1024 * 1024;
/** The share of it that heads and messages may take that have not arrived whole. */
const MAX_PENDING = 4 * 1024 * 1024;
/** What an exchange takes besides its heads and bodies, generously: objects, numbers, places in lists. */
const EXCHANGE_OVERHEAD = 1_024;
/** What a packed one takes besides its bytes. */
const PACKED_OVERHEAD = 16;
const MESSAGE_OVERHEAD = 256;
const REPORT_OVERHEAD = 128;
const MAX_MESSAGES = 1_000;
const MAX_MESSAGE_BYTES = 16 * 1024;

type Watcher = (tunnelId: string, id: number) => void;
type NewMessage = Omit<ExchangeMessage, 'number' | 'at'>;

/** The captured exchanges of all tunnels, in memory: the oldest give way to new ones. */
export class CaptureStore implements PendingMemory {
  /** By ids that count from `#firstId`; of those that are packed, the place. A map of so many is slow. */
  #exchanges: (CapturedExchange | number | undefined)[] = [];
  #firstId = 1;
  readonly #packed: PackedExchanges;
  readonly #limit: number;
  readonly #watchers = new Set<Watcher>();
  /** Reports of the gateway, as JSON. */
  readonly #reports = new Map<number, string>();
  #lastId = 0;
  /** No exchange has a lower id. */
  #oldestId = 1;
  #held = 0;
  readonly #pending: MemoryBudget;

  /** @param maxBytes see {@link MAX_HELD}; less in tests */
  constructor(private readonly maxBytes = MAX_HELD) {
    this.#packed = new PackedExchanges(maxBytes);
    this.#limit = maxBytes - this.#packed.reserve;
    this.#pending = new MemoryBudget(Math.min(MAX_PENDING, maxBytes / 4));
  }

  /** Bytes. */
  get held(): number {
    return this.#held + this.#pending.reserved + this.#packed.size;
  }

  get max(): number {
    return this.maxBytes;
  }

  tryReserve(bytes: number): boolean {
    if (!this.#pending.tryReserve(bytes)) return false;
    this.#makeRoom();
    return true;
  }

  release(bytes: number): void {
    this.#pending.release(bytes);
  }

  add(tunnelId: string, request: CapturedMessage<RequestLine>, replayOf: number | null): CapturedExchange {
    const exchange = new CapturedExchange(++this.#lastId, tunnelId, request, replayOf);
    this.#exchanges.push(exchange);
    this.#count(exchange, EXCHANGE_OVERHEAD + request.head.length);
    this.changed(exchange);
    return exchange;
  }

  attach(id: number, report: RequestReport): void {
    const held = this.#at(id);
    if (held === undefined || this.#reports.has(id)) return;
    const text = JSON.stringify(report);
    this.#reports.set(id, text);
    this.#held += REPORT_OVERHEAD + text.length;
    if (this.#watchers.size > 0) this.#tell(this.#tunnelOf(held), id);
    this.#makeRoom();
  }

  takeResponse(exchange: CapturedExchange, response: CapturedMessage<StatusLine>): void {
    exchange.response = response;
    if (exchange.isHeld) this.#count(exchange, response.head.length);
    else response.head = '';
    this.changed(exchange);
  }

  takeBody(
    exchange: CapturedExchange,
    message: CapturedMessage<unknown>,
    bytes: Buffer,
    from = 0,
    to = bytes.length,
  ): void {
    if (exchange.isHeld) this.#count(exchange, message.takeBody(bytes, from, to));
    else message.bodySize += to - from;
    this.changed(exchange);
  }

  takeTrailers(exchange: CapturedExchange, message: CapturedMessage<unknown>, trailers: string): void {
    if (!exchange.isHeld || trailers.length <= 2) return;
    message.trailers = trailers;
    this.#count(exchange, trailers.length);
  }

  takeMessage(exchange: CapturedExchange, message: NewMessage): void {
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

  /** Call this when the exchange has ended. Nothing may be taken for a complete one afterwards. */
  ended(exchange: CapturedExchange): void {
    const place = exchange.isHeld ? this.#packed.pack(exchange) : null;
    if (place !== null) {
      this.#exchanges[exchange.id - this.#firstId] = place;
      this.#held += PACKED_OVERHEAD - exchange.held;
      this.#makeRoom();
    }
    this.changed(exchange);
  }

  changed({ tunnelId, id }: CapturedExchange): void {
    if (this.#watchers.size > 0) this.#tell(tunnelId, id);
  }

  watch(watcher: Watcher): () => void {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  holds(id: number): boolean {
    return this.#at(id) !== undefined;
  }

  find(tunnelId: string, id: number): CapturedExchange | null {
    const held = this.#at(id);
    if (held === undefined || this.#tunnelOf(held) !== tunnelId) return null;
    const exchange = typeof held === 'number' ? this.#packed.unpack(id, held) : held;
    const report = this.#reports.get(id);
    if (report !== undefined) exchange.reported(JSON.parse(report) as RequestReport);
    return exchange;
  }

  /** Those of one tunnel that are held when their turn comes, newest first. */
  *list(tunnelId: string): Generator<CapturedExchange> {
    for (let id = this.#lastId; id >= this.#oldestId; id--) {
      const exchange = this.find(tunnelId, id);
      if (exchange) yield exchange;
    }
  }

  /** The same, oldest first. */
  *listOldestFirst(tunnelId: string): Generator<CapturedExchange> {
    const last = this.#lastId;
    for (let id = this.#oldestId; id <= last; id++) {
      const exchange = this.find(tunnelId, id);
      if (exchange) yield exchange;
    }
  }

  countOf(tunnelId: string): number {
    let count = 0;
    for (const held of this.#exchanges) if (held !== undefined && this.#tunnelOf(held) === tunnelId) count++;
    return count;
  }

  clear(tunnelId: string): void {
    for (let id = this.#oldestId; id <= this.#lastId; id++) {
      const held = this.#at(id);
      if (held !== undefined && this.#tunnelOf(held) === tunnelId) this.#forget(id, held);
    }
    while (this.#oldestId <= this.#lastId && this.#at(this.#oldestId) === undefined) this.#oldestId++;
    this.#shorten();
  }

  #at(id: number): CapturedExchange | number | undefined {
    return this.#exchanges[id - this.#firstId];
  }

  #count(exchange: CapturedExchange, bytes: number): void {
    if (bytes === 0) return;
    exchange.held += bytes;
    this.#held += bytes;
    if (bytes > 0) this.#makeRoom();
  }

  #makeRoom(): void {
    while (this.held > this.#limit && this.#oldestId <= this.#lastId) {
      const id = this.#oldestId++;
      const oldest = this.#at(id);
      if (oldest !== undefined) this.#forget(id, oldest);
    }
    if (this.#oldestId - this.#firstId > this.#exchanges.length / 2) this.#shorten();
  }

  /** Gives back the places of the oldest, which are forgotten. */
  #shorten(): void {
    this.#exchanges = this.#exchanges.slice(this.#oldestId - this.#firstId);
    this.#firstId = this.#oldestId;
  }

  #forget(id: number, held: CapturedExchange | number): void {
    if (this.#watchers.size > 0) this.#tell(this.#tunnelOf(held), id);
    this.#exchanges[id - this.#firstId] = undefined;
    const report = this.#reports.get(id);
    if (report !== undefined) {
      this.#reports.delete(id);
      this.#held -= REPORT_OVERHEAD + report.length;
    }
    if (typeof held === 'number') {
      this.#held -= PACKED_OVERHEAD;
      this.#packed.remove(held);
    } else {
      this.#held -= held.held;
      held.clear();
    }
  }

  #tunnelOf(held: CapturedExchange | number): string {
    return typeof held === 'number' ? this.#packed.tunnelOf(held) : held.tunnelId;
  }

  #tell(tunnelId: string, id: number): void {
    for (const watcher of this.#watchers) watcher(tunnelId, id);
  }
}
