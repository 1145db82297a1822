import type { Channel, ChannelReceiver } from '../../../agent-protocol/channel.ts';
import { ProxyHeader } from '../../../agent-protocol/messages.ts';

const LENGTH_BYTES = 8;
/** Far more than a header has. */
const MAX_HEADER = 65_536;

/**
 * Reads the header of a stream for a client's connection, then passes the stream on. The header's length is little endian,
 * unlike everything else (`@ngrok/ngrok` 1.7.0).
 */
export class ProxyStream implements ChannelReceiver {
  #bytes: Buffer = Buffer.alloc(0);

  /** @param serve sets the channel's receiver; null for a stream that nobody serves */
  constructor(
    private readonly channel: Channel,
    private readonly serve: (header: ProxyHeader, channel: Channel) => ChannelReceiver | null,
  ) {}

  onData(payload: Buffer): void {
    this.#bytes = this.#bytes.length === 0 ? payload : Buffer.concat([this.#bytes, payload]);
    if (this.#bytes.length < LENGTH_BYTES) return;
    const length = this.#bytes.readBigUInt64LE();
    if (length > MAX_HEADER) {
      this.channel.abort();
      return;
    }
    const end = LENGTH_BYTES + Number(length);
    if (this.#bytes.length < end) return;
    const header = headerIn(this.#bytes.subarray(LENGTH_BYTES, end));
    const receiver = header && this.serve(header, this.channel);
    if (receiver === null) {
      this.channel.abort();
      return;
    }
    this.channel.receiver = receiver;
    if (this.#bytes.length > end) receiver.onData(this.#bytes.subarray(end));
  }

  onEnd(): void {
    this.channel.abort();
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
