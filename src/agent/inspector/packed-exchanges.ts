import { CapturedExchange, CapturedMessage } from './captured-exchange.ts';
import type { GrowingBytes } from './parsing/growing-bytes.ts';
import { requestLineOf, statusLineOf } from './parsing/message-head.ts';

interface Segment {
  /** Its place in the list of segments. */
  readonly number: number;
  readonly bytes: Buffer;
  /** The same memory. */
  readonly numbers: Float64Array;
  used: number;
  /** Packed exchanges that are still wanted. */
  live: number;
}

/** Bits of a place that are the offset in a segment. */
const OFFSET_BITS = 18;
const MAX_SEGMENT = 1 << OFFSET_BITS;
/** Of the first segment. */
const MIN_SEGMENT = 16 * 1024;
/** Bytes of a number. */
const NUMBER = 8;
/** Thirteen numbers before the heads and bodies. */
const HEADER = 13 * NUMBER;
/** Stands for null where every number is possible but this. */
const NONE = Number.NaN;

/**
 * Completed exchanges as bytes. Thousands of objects that live for minutes would cost the garbage collector more time than
 * all the rest of the inspection.
 */
export class PackedExchanges {
  readonly #segments: (Segment | undefined)[] = [];
  #current: Segment | null = null;
  /** The last full-size one that became empty, for the next: the garbage collector would free it late. */
  #spare: Segment | null = null;
  #size = 0;
  readonly #maxSegment: number;
  /** Tunnels by the numbers that stand for them. */
  readonly #tunnels: string[] = [];

  /** @param maxBytes that all of them will take; segments are a small part of it */
  constructor(maxBytes: number) {
    this.#maxSegment = Math.min(MAX_SEGMENT, Math.ceil(maxBytes / 64 / NUMBER) * NUMBER);
  }

  /** Bytes of memory that may be taken besides {@link size}. */
  get reserve(): number {
    return this.#maxSegment;
  }

  /** Bytes of memory that they take. */
  get size(): number {
    return this.#size;
  }

  /** @returns its place; null when it must stay an object */
  pack(exchange: CapturedExchange): number | null {
    const { request, response } = exchange;
    if (response === null || request.endedAt === null || !isPlain(exchange)) return null;
    const size = HEADER + request.head.length + response.head.length + lengthOf(request.body) + lengthOf(response.body);
    if (size > this.#maxSegment / 4) return null;
    const segment = this.#segmentFor(size);
    const { bytes, numbers, used } = segment;
    // Numbers have addresses that are multiples of their size.
    segment.used += Math.ceil(size / NUMBER) * NUMBER;
    segment.live++;
    const first = used / NUMBER;
    numbers[first] = exchange.startedAt;
    numbers[first + 1] = request.beganAt;
    numbers[first + 2] = request.endedAt;
    numbers[first + 3] = response.beganAt;
    numbers[first + 4] = exchange.endedAt ?? NONE;
    numbers[first + 5] = exchange.replayOf ?? NONE;
    numbers[first + 6] = request.bodySize;
    numbers[first + 7] = response.bodySize;
    numbers[first + 8] = this.#numberOf(exchange.tunnelId);
    numbers[first + 9] = request.head.length;
    numbers[first + 10] = response.head.length;
    numbers[first + 11] = request.body === null ? -1 : request.body.length;
    numbers[first + 12] = response.body === null ? -1 : response.body.length;
    let at = used + HEADER;
    at += bytes.write(request.head, at, 'latin1');
    at += bytes.write(response.head, at, 'latin1');
    if (request.body !== null) at += request.body.copyTo(bytes, at);
    response.body?.copyTo(bytes, at);
    return (segment.number << OFFSET_BITS) | used;
  }

  unpack(id: number, place: number): CapturedExchange {
    const { bytes, numbers } = this.#segmentOf(place);
    const at = place & (MAX_SEGMENT - 1);
    const number = (index: number) => numbers[at / NUMBER + index] ?? NONE;
    let from = at + HEADER;
    const head = (length: number) => {
      from += length;
      return bytes.toString('latin1', from - length, from);
    };
    const body = (message: CapturedMessage<unknown>, length: number) => {
      if (length < 0) return;
      from += length;
      // Copied, as the place may hold others before this one is read.
      message.takeBody(bytes, from - length, from);
    };
    const [requestHead, responseHead] = [head(number(9)), head(number(10))];
    const request = new CapturedMessage(requestLineOf(requestHead), requestHead, number(1));
    const response = new CapturedMessage(statusLineOf(responseHead), responseHead, number(3));
    const replayOf = number(5);
    const tunnelId = this.#tunnels[number(8)] ?? '';
    const exchange = new CapturedExchange(id, tunnelId, request, Number.isNaN(replayOf) ? null : replayOf, number(0));
    exchange.response = response;
    exchange.state = 'complete';
    request.endedAt = number(2);
    exchange.endedAt = response.endedAt = number(4);
    body(request, number(11));
    body(response, number(12));
    request.bodySize = number(6);
    response.bodySize = number(7);
    exchange.held = from - at;
    return exchange;
  }

  tunnelOf(place: number): string {
    const { numbers } = this.#segmentOf(place);
    return this.#tunnels[numbers[(place & (MAX_SEGMENT - 1)) / NUMBER + 8] ?? NONE] ?? '';
  }

  /** Frees the place of one. Its memory is free when all those of a segment are. */
  remove(place: number): void {
    const segment = this.#segments[place >> OFFSET_BITS];
    if (segment === undefined || --segment.live > 0) return;
    this.#segments[segment.number] = undefined;
    this.#size -= segment.bytes.length;
    if (this.#current === segment) this.#current = null;
    if (segment.bytes.length === this.#maxSegment) this.#spare = segment;
    if (this.#size > 0) return;
    this.#spare = null;
    this.#tunnels.length = 0;
  }

  #segmentOf(place: number): Segment {
    return this.#segments[place >> OFFSET_BITS] as Segment;
  }

  #segmentFor(size: number): Segment {
    const current = this.#current;
    if (current !== null && current.used + size <= current.bytes.length) return current;
    const free = this.#segments.indexOf(undefined);
    const segment = this.#newSegment(free === -1 ? this.#segments.length : free, size);
    this.#segments[segment.number] = segment;
    this.#size += segment.bytes.length;
    this.#current = segment;
    return segment;
  }

  #newSegment(number: number, size: number): Segment {
    const spare = this.#spare;
    this.#spare = null;
    if (spare !== null) return { ...spare, number, used: 0, live: 0 };
    // As large as all so far: a few requests take little.
    const wanted = Math.max(MIN_SEGMENT, this.#size, Math.ceil(size / NUMBER) * NUMBER);
    const bytes = Buffer.allocUnsafeSlow(Math.min(this.#maxSegment, wanted));
    const numbers = new Float64Array(bytes.buffer);
    return { number, bytes, numbers, used: 0, live: 0 };
  }

  #numberOf(tunnelId: string): number {
    const known = this.#tunnels.indexOf(tunnelId);
    return known === -1 ? this.#tunnels.push(tunnelId) - 1 : known;
  }
}

function isPlain({ kind, state, request, response }: CapturedExchange): boolean {
  return kind === 'http' && state === 'complete' && request.trailers === '' && (response?.trailers ?? '') === '';
}

const lengthOf = (body: GrowingBytes | null) => body?.length ?? 0;
