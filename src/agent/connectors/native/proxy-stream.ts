import type { Channel, ChannelReceiver } from '../../../agent-protocol/channel.ts';
import { ProxyHeader } from '../../../agent-protocol/messages.ts';

const LENGTH_BYTES = 8;
/** Far more than a header has. */
const MAX_HEADER = 4096;

/**
 * Reads the header of a stream for a client's connection, then passes the stream on. The header's length is little endian,
 * unlike everything else (`@ngrok/ngrok` 1.7.0).
 */
export class ProxyStream implements ChannelReceiver {
  /** An unfinished header. */
  #kept: Buffer = Buffer.alloc(0);

  /** @param serve sets the channel's receiver; null for a stream that nobody serves */
  constructor(
    private readonly channel: Channel,
    private readonly serve: (header: ProxyHeader, channel: Channel) => ChannelReceiver | null,
  ) {}

  onData(payload: Buffer): void {
    const bytes = this.#kept.length === 0 ? payload : Buffer.concat([this.#kept, payload]);
    const length = bytes.length < LENGTH_BYTES ? 0n : bytes.readBigUInt64LE();
    const end = LENGTH_BYTES + Number(length);
    if (length > MAX_HEADER) this.channel.abort();
    else if (bytes.length < end) this.#keep(bytes);
    else this.#pass(bytes.subarray(LENGTH_BYTES, end), bytes.subarray(end));
  }

  onEnd(): void {
    this.channel.abort();
  }

  #keep(bytes: Buffer): void {
    this.channel.keep(bytes.length - this.#kept.length);
    // Copied, so that nothing larger is kept.
    this.#kept = Buffer.from(bytes);
  }

  #pass(head: Buffer, rest: Buffer): void {
    this.channel.keep(-this.#kept.length);
    const header = headerIn(head);
    const receiver = header && this.serve(header, this.channel);
    if (receiver === null) {
      this.channel.abort();
      return;
    }
    this.channel.receiver = receiver;
    if (rest.length > 0) receiver.onData(rest);
  }
}

function headerIn(bytes: Buffer): ProxyHeader | null {
  try {
    return ProxyHeader.parse(JSON.parse(bytes.toString()));
  } catch {
    // The gateway gets a reset, as for any stream that cannot be served.
    return null;
  }
}
