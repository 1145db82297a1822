import { CapturedMessage, Exchange } from './exchange.ts';
import type { GrowingBytes } from './parsing/growing-bytes.ts';
import { requestLineOf, statusLineOf } from './parsing/message-head.ts';

interface Segment {
  /** Its place in the list of segments. */
  readonly number: number;
  readonly bytes: Buffer;
  used: number;
  /** Packed exchanges that are still wanted. */
  live: number;
}

/** Bits of a place that are the offset in a segment. */
const OFFSET_BITS = 18;
const MAX_SEGMENT = 1 << OFFSET_BITS;
/** Numbers before the heads and bodies: eight of 8 bytes, then five of 4. */
const DOUBLES = 8;
const HEADER = DOUBLES * 8 + 5 * 4;
/** Stands for null where every number is possible but this. */
const NONE = Number.NaN;

/**
 * Completed exchanges as bytes. Thousands of objects that live for minutes would cost the garbage collector more time than
 * all the rest of the inspection.
 */
export class PackedExchanges {
  readonly #segments: (Segment | undefined)[] = [];
  #current: Segment | null = null;
  #size = 0;
  readonly #segmentSize: number;
  /** Tunnels by the numbers that stand for them. */
  readonly #tunnels: string[] = [];

  /** @param maxBytes that all of them will take; segments are a small part of it */
  constructor(maxBytes: number) {
    this.#segmentSize = Math.min(MAX_SEGMENT, Math.ceil(maxBytes / 64));
  }

  /** Bytes of memory that they take. */
  get size(): number {
    return this.#size;
  }

  /** @returns its place; null when it must stay an object */
  pack(exchange: Exchange): number | null {
    const { request, response } = exchange;
    if (response === null || request.endedAt === null || !isPlain(exchange)) return null;
    const size = HEADER + request.head.length + response.head.length + lengthOf(request.body) + lengthOf(response.body);
    if (size > this.#segmentSize / 4) return null;
    const segment = this.#segmentFor(size);
    const { bytes, used } = segment;
    segment.used += size;
    segment.live++;
    let at = bytes.writeDoubleLE(exchange.startedAt, used);
    at = bytes.writeDoubleLE(request.beganAt, at);
    at = bytes.writeDoubleLE(request.endedAt, at);
    at = bytes.writeDoubleLE(response.beganAt, at);
    at = bytes.writeDoubleLE(exchange.endedAt ?? NONE, at);
    at = bytes.writeDoubleLE(exchange.replayOf ?? NONE, at);
    at = bytes.writeDoubleLE(request.bodySize, at);
    at = bytes.writeDoubleLE(response.bodySize, at);
    at = bytes.writeInt32LE(this.#numberOf(exchange.tunnelId), at);
    at = bytes.writeInt32LE(request.head.length, at);
    at = bytes.writeInt32LE(response.head.length, at);
    at = bytes.writeInt32LE(request.body === null ? -1 : request.body.length, at);
    at = bytes.writeInt32LE(response.body === null ? -1 : response.body.length, at);
    at += bytes.write(request.head, at, 'latin1');
    at += bytes.write(response.head, at, 'latin1');
    if (request.body !== null) at += request.body.copyTo(bytes, at);
    response.body?.copyTo(bytes, at);
    return (segment.number << OFFSET_BITS) | used;
  }

  unpack(id: number, place: number): Exchange {
    const { bytes, at } = this.#at(place);
    const double = (index: number) => bytes.readDoubleLE(at + index * 8);
    const int = (index: number) => bytes.readInt32LE(at + DOUBLES * 8 + index * 4);
    let from = at + HEADER;
    const next = (length: number) => {
      const start = from;
      from += Math.max(0, length);
      return bytes.subarray(start, from);
    };
    const [requestHead, responseHead] = [next(int(1)).toString('latin1'), next(int(2)).toString('latin1')];
    const request = new CapturedMessage(requestLineOf(requestHead), requestHead, double(1));
    const response = new CapturedMessage(statusLineOf(responseHead), responseHead, double(3));
    const replayOf = double(5);
    const tunnelId = this.#tunnels[int(0)] as string;
    const exchange = new Exchange(id, tunnelId, request, Number.isNaN(replayOf) ? null : replayOf, double(0));
    exchange.response = response;
    exchange.state = 'complete';
    request.endedAt = double(2);
    exchange.endedAt = response.endedAt = double(4);
    // Copied, as the place may hold others before this one is read.
    if (int(3) >= 0) request.takeBody(next(int(3)));
    if (int(4) >= 0) response.takeBody(next(int(4)));
    request.bodySize = double(6);
    response.bodySize = double(7);
    exchange.held = from - at;
    return exchange;
  }

  tunnelOf(place: number): string {
    const { bytes, at } = this.#at(place);
    return this.#tunnels[bytes.readInt32LE(at + DOUBLES * 8)] as string;
  }

  /** Frees the place of one. Its memory is free when all those of a segment are. */
  remove(place: number): void {
    const segment = this.#segments[place >> OFFSET_BITS];
    if (segment === undefined || --segment.live > 0) return;
    this.#segments[segment.number] = undefined;
    this.#size -= segment.bytes.length;
    if (this.#current === segment) this.#current = null;
    if (this.#size === 0) this.#tunnels.length = 0;
  }

  #at(place: number): { bytes: Buffer; at: number } {
    const { bytes } = this.#segments[place >> OFFSET_BITS] as Segment;
    return { bytes, at: place & (MAX_SEGMENT - 1) };
  }

  #segmentFor(size: number): Segment {
    const current = this.#current;
    if (current !== null && current.used + size <= current.bytes.length) return current;
    const free = this.#segments.indexOf(undefined);
    const number = free === -1 ? this.#segments.length : free;
    const segment = { number, bytes: Buffer.allocUnsafeSlow(this.#segmentSize), used: 0, live: 0 };
    this.#segments[number] = segment;
    this.#size += this.#segmentSize;
    this.#current = segment;
    return segment;
  }

  #numberOf(tunnelId: string): number {
    const known = this.#tunnels.indexOf(tunnelId);
    return known === -1 ? this.#tunnels.push(tunnelId) - 1 : known;
  }
}

function isPlain({ kind, state, request, response }: Exchange): boolean {
  return kind === 'http' && state === 'complete' && request.trailers === '' && (response?.trailers ?? '') === '';
}

const lengthOf = (body: GrowingBytes | null) => body?.length ?? 0;
