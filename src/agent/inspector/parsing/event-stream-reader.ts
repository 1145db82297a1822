import { PendingBytes, type PendingMemory } from './growing-bytes.ts';

export interface ServerSentEvent {
  /** Its name; `message` when it has none. */
  event: string;
  data: string;
  /** Bytes of its lines. */
  size: number;
  /** Whether more was sent than `data`. */
  truncated: boolean;
}

const LF = 0x0a;
const CR = 0x0d;
/** More of an event is not kept. */
const MAX_EVENT = 16 * 1024;

/** Reads server-sent events (HTML Living Standard, section 9.2.6) as they come. */
export class EventStreamReader {
  readonly #block: PendingBytes;
  #size = 0;
  /** Bytes in the present line. */
  #line = 0;
  #afterCr = false;
  #truncated = false;

  constructor(
    memory: PendingMemory,
    private readonly onEvent: (event: ServerSentEvent) => void,
  ) {
    this.#block = new PendingBytes(MAX_EVENT, memory);
  }

  read(bytes: Buffer): void {
    let start = 0;
    for (let at = 0; at < bytes.length; at++) {
      const byte = bytes[at];
      const endsCrLf = byte === LF && this.#afterCr;
      this.#afterCr = byte === CR;
      if (endsCrLf) continue;
      if (byte !== LF && byte !== CR) {
        this.#line++;
        continue;
      }
      const isBlank = this.#line === 0;
      this.#line = 0;
      if (!isBlank) continue;
      this.#take(bytes.subarray(start, at));
      this.#eventEnds();
      start = at + 1;
    }
    this.#take(bytes.subarray(start));
  }

  /** Gives back the memory of an event that will not end. */
  release(): void {
    this.#block.clear();
  }

  #take(bytes: Buffer): void {
    this.#size += bytes.length;
    const part = bytes.subarray(0, MAX_EVENT - this.#block.length);
    if (part.length > 0 && !this.#block.append(part)) this.#truncated = true;
    if (part.length < bytes.length) this.#truncated = true;
  }

  #eventEnds(): void {
    const text = this.#block.bytes.toString('utf8');
    const [size, truncated] = [this.#size, this.#truncated];
    this.#block.clear();
    this.#size = 0;
    this.#truncated = false;
    if (!text.includes('data')) return;
    const { event, data } = fieldsOf(text);
    if (data !== null) this.onEvent({ event, data, size, truncated });
  }
}

/** Comments and events without data, which clients do not get either, have no data. */
function fieldsOf(block: string): { event: string; data: string | null } {
  let event = '';
  const data: string[] = [];
  for (const line of block.replace(/^\ufeff/, '').split(/\r\n|\n|\r/)) {
    const [, name, value = ''] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? [];
    if (name === 'event') event = value;
    else if (name === 'data') data.push(value);
  }
  return { event: event || 'message', data: data.length === 0 ? null : data.join('\n') };
}
