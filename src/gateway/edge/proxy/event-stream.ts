import { Transform } from 'node:stream';
import { ByteBlocks } from '../../../lib/byte-blocks.ts';
import { Reservation } from '../../../lib/memory-budget.ts';
import { clientNetwork } from '../../../lib/network/ip-address.ts';
import { runInTurn } from '../../../lib/time/loop-turn.ts';
import type { EventStreamMessage, PolicyResponse } from '../../../traffic-policy/policy-subjects.ts';
import { asError } from '../http/edge-errors.ts';
import type { EdgeRequest } from './edge-request.ts';

/** A policy searches whole messages. */
const MAX_MESSAGE = 64 * 1024;

/** Memory that a stream with a message takes besides it. */
const STREAM_BYTES = 16_384;
/** Times that a message is held while the policy has it: as bytes, as text, and the values of its fields. */
const COPIES = 4;

const LF = 0x0a;
const CR = 0x0d;
const LINE_BREAK = /\r\n|\r|\n/;

/** Collects the bytes of an event stream into messages, each with the empty line that ends it. */
class MessageReader {
  readonly #begun = new ByteBlocks();
  #lineIsEmpty = false;
  #afterCr = false;

  /** Bytes of memory that it takes. */
  get held(): number {
    return this.#begun.held;
  }

  /** @throws Error when a message is too long */
  *push(piece: Buffer): Generator<Buffer> {
    let from = 0;
    for (let at = 0; at < piece.length; at++) {
      if (!this.#ends(piece[at])) continue;
      this.#add(piece, from, at + 1);
      yield this.rest();
      from = at + 1;
    }
    this.#add(piece, from, piece.length);
  }

  /** What has arrived of a message that has not ended. */
  rest(): Buffer {
    const message = this.#begun.joined();
    this.#begun.clear();
    return message;
  }

  /** Whether a byte ends an empty line; the second one of CR LF belongs to what follows. */
  #ends(byte: number | undefined): boolean {
    const isRestOfBreak = byte === LF && this.#afterCr;
    this.#afterCr = byte === CR;
    if (isRestOfBreak) return false;
    const isBreak = byte === LF || byte === CR;
    const ends = isBreak && this.#lineIsEmpty;
    this.#lineIsEmpty = isBreak;
    return ends;
  }

  #add(piece: Buffer, from: number, to: number): void {
    if (this.#begun.length + to - from > MAX_MESSAGE) throw new Error(`a message has more than ${MAX_MESSAGE} bytes`);
    this.#begun.add(piece, from, to);
  }
}

/** Passes the messages of an event stream through the policy, one after another; an outcome of it is an error. */
export function eventStream(request: EdgeRequest, response: PolicyResponse): Transform {
  const reader = new MessageReader();
  const network = clientNetwork(request.connection.clientIp);
  const held = new Reservation(request.bodyMemory);
  /** Whether the policy has a message, which counts until it is done, however the stream ends. */
  let isChanging = false;
  /** Counts so many bytes of messages from now on. */
  const count = (bytes: number) => {
    held.release();
    if (bytes > 0) held.require(bytes + STREAM_BYTES);
  };
  const changed = async (bytes: Buffer): Promise<Buffer> => {
    count(bytes.length * COPIES);
    isChanging = true;
    try {
      return await changedMessage(bytes, request, response);
    } finally {
      isChanging = false;
      held.release();
    }
  };
  return new Transform({
    transform(piece: Buffer, _encoding, done) {
      const run = async () => {
        for (const bytes of reader.push(piece)) {
          // A device can send thousands of them in one piece.
          await new Promise<void>((resolve) => runInTurn(network, resolve));
          if (this.destroyed) return;
          this.push(await changed(bytes));
        }
        if (!this.destroyed) count(reader.held);
      };
      run().then(
        () => done(),
        (error: unknown) => done(asError(error)),
      );
    },
    flush(done) {
      changed(reader.rest()).then(
        (last) => done(null, last),
        (error: unknown) => done(asError(error)),
      );
    },
    destroy(error, done) {
      if (!isChanging) held.release();
      done(error);
    },
  });
}

async function changedMessage(bytes: Buffer, request: EdgeRequest, response: PolicyResponse): Promise<Buffer> {
  const before = fieldsOf(bytes);
  if (before.data === null && before.retry === null) return bytes;
  const message: EventStreamMessage = { response, ...before };
  const outcome = await request.policy.onEventStreamMessage?.(request, message);
  if (outcome !== undefined) throw new Error(outcome.message);
  const isSame = message.data === before.data && message.retry === before.retry;
  return isSame ? bytes : Buffer.from(written(bytes.toString(), message));
}

/** The values that a policy may change. Its lines are split again afterwards: they take more memory than their text. */
function fieldsOf(bytes: Buffer): Pick<EventStreamMessage, 'data' | 'retry'> {
  const lines = bytes.toString().split(LINE_BREAK);
  const data = lines.filter((line) => fieldOf(line) === 'data').map(valueIn);
  const retry = lines.findLast((line) => fieldOf(line) === 'retry');
  return {
    data: data.length === 0 ? null : data.join('\n'),
    retry: retry === undefined ? null : valueIn(retry),
  };
}

/** The lines with the new values, each in the place of the first line of its field. */
function written(text: string, { data, retry }: EventStreamMessage): string {
  const fields = new Map([
    ['data', (data ?? '').split(LINE_BREAK)],
    // A line break would begin another field.
    ['retry', (retry ?? '').split(LINE_BREAK, 1)],
  ]);
  const result: string[] = [];
  for (const line of text.split(LINE_BREAK)) {
    const name = fieldOf(line);
    if (name === null) result.push(line);
    else {
      for (const value of fields.get(name) ?? []) result.push(`${name}: ${value}`);
      fields.delete(name);
    }
  }
  return result.join(LINE_BREAK.exec(text)?.[0] ?? '\n');
}

/** The name of a field that a policy may change; null for others. A stream may begin with a byte order mark. */
function fieldOf(line: string): string | null {
  return /^\ufeff?(data|retry)(?=:|$)/.exec(line)?.[1] ?? null;
}

function valueIn(line: string): string {
  return line.replace(/^[^:]*:? ?/, '');
}
