import { ByteQueue } from '../../../agent-protocol/byte-queue.ts';
import type { ChannelReceiver } from '../../../agent-protocol/channel.ts';
import type { Connection } from '../../../agent-protocol/connection.ts';
import { StreamType, streamPrefix } from '../../../agent-protocol/messages.ts';
import { MAX_LINE } from '../../../agent-protocol/request-report.ts';
import type { RequestWatcher } from '../connector.ts';

const LINE_BREAK = 0x0a;

/**
 * Asks the gateway for reports of the requests to an endpoint.
 *
 * @returns ends it
 */
export function watchRequests(connection: Connection, id: string, watcher: RequestWatcher): () => void {
  const channel = connection.channel();
  channel.write(Buffer.concat([streamPrefix(StreamType.requests), Buffer.from(JSON.stringify({ Id: id }))]));
  let isOver = false;
  const end = () => {
    if (isOver) return;
    isOver = true;
    // Not with a reset, which gateways count.
    channel.end();
    watcher.onEnd();
  };
  channel.receiver = new LineReader((line) => isOver || watcher.onLine(line), end);
  connection.open(channel);
  return () => {
    isOver = true;
    channel.end();
  };
}

/** Splits a stream into lines. A line that is too long ends it. */
export class LineReader implements ChannelReceiver {
  readonly #line = new ByteQueue(0);
  #length = 0;

  constructor(
    private readonly onLine: (line: string) => void,
    private readonly onOver: () => void,
  ) {}

  onData(payload: Buffer): void {
    let from = 0;
    for (let to = payload.indexOf(LINE_BREAK); to !== -1; to = payload.indexOf(LINE_BREAK, from)) {
      this.#keep(payload.subarray(from, to));
      from = to + 1;
      const line = Buffer.concat(this.#line.take(this.#line.length)).toString();
      this.#length = 0;
      this.onLine(line);
    }
    if (from < payload.length) this.#keep(payload.subarray(from));
    if (this.#length <= MAX_LINE) return;
    this.#line.clear();
    this.onOver();
  }

  onEnd(): void {
    this.onOver();
  }

  onClosed(): void {
    this.onOver();
  }

  #keep(piece: Buffer): void {
    this.#length += piece.length;
    // Copied, so that nothing larger is kept.
    if (this.#length <= MAX_LINE) this.#line.push(Buffer.from(piece));
  }
}
