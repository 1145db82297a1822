import type { Watch } from '../../../support/flaky-proxy.ts';

/** In the statement that commits, in a message of the type `P`, or `Q` with the lock before it. */
const COMMITS = 'UPDATE device_agent.cluster SET version = version + 1';
const TYPES: readonly (number | undefined)[] = [0x50, 0x51];
/** Messages of the gateway from that statement to COMMIT: parse, bind, describe, execute, sync, query; or two of the last kind. */
const SENT = 6;
/** Messages of the server meanwhile, with the answers to BEGIN and its limits before the statement. */
const ANSWERED = 19;

/** Breaks a connection to PostgreSQL at a message of a commit. */
export class CommitCut {
  /** Before the statement, after each message that is sent for it, or after each that answers. */
  static readonly POSITIONS = 1 + SENT + ANSWERED;
  /** Where the next commit breaks; null: nowhere. */
  position: number | null = null;

  watch(): Watch {
    const [sent, answered] = [new Messages(false), new Messages(true)];
    /** Messages that have passed since a commit began; null: none has. */
    let passed: { client: number; upstream: number } | null = null;
    const isHere = (from: 'client' | 'upstream') => {
      if (passed === null) return false;
      return this.position === (from === 'client' ? passed.client : SENT + passed.upstream);
    };
    return (from, piece) => {
      for (const { message, start, end } of (from === 'client' ? sent : answered).push(piece)) {
        if (from === 'client' && TYPES.includes(message[0]) && message.includes(COMMITS)) {
          passed = { client: 0, upstream: 0 };
          if (isHere('client')) return this.#cut(start);
        }
        if (passed === null) continue;
        passed[from] += 1;
        if (isHere(from)) return this.#cut(end);
      }
      return null;
    };
  }

  #cut(at: number): number {
    this.position = null;
    return at;
  }
}

/** Divides what passes in one direction into messages: a letter, unless it is the first of a client, and their length. */
class Messages {
  #rest = Buffer.alloc(0);

  constructor(private hasType: boolean) {}

  /** Messages that end in a piece, and where they begin and end there. */
  *push(piece: Buffer): Generator<{ message: Buffer; start: number; end: number }> {
    const before = this.#rest.length;
    this.#rest = Buffer.concat([this.#rest, piece]);
    let start = 0;
    for (;;) {
      const at = start + (this.hasType ? 1 : 0);
      if (this.#rest.length < at + 4) break;
      const end = at + this.#rest.readInt32BE(at);
      if (this.#rest.length < end) break;
      this.hasType = true;
      yield { message: this.#rest.subarray(start, end), start: Math.max(0, start - before), end: end - before };
      start = end;
    }
    this.#rest = this.#rest.subarray(start);
  }
}
