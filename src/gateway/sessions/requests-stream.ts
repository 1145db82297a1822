import type { Channel, ChannelReceiver } from '../../agent-protocol/channel.ts';
import { RpcError } from '../../agent-protocol/rpc.ts';
import type { ReportQueue } from '../endpoints/request-feed.ts';
import type { BoundEndpoint } from './agent-listener.ts';

export class RequestsStreams {
  readonly #open = new Set<RequestsStream>();

  constructor(
    private readonly max: number,
    private readonly named: (id: string) => BoundEndpoint,
  ) {}

  /** @throws {RpcError} at the limit, or when there is no such endpoint */
  begin(channel: Channel, id: string): ChannelReceiver {
    if (this.#open.size >= this.max) {
      throw new RpcError('ERR_NGROK_301', `too many feeds of requests: one session can have ${this.max}`);
    }
    const endpoint = this.named(id);
    const stream: RequestsStream = new RequestsStream(channel, () => this.#open.delete(stream));
    this.#open.add(stream);
    stream.follow(endpoint);
    return stream;
  }
}

/** A stream on which an agent gets reports of the requests to one of its endpoints: a line of JSON for each. */
class RequestsStream implements ChannelReceiver {
  #queue: ReportQueue | null = null;
  #isCut = false;

  constructor(
    private readonly channel: Channel,
    private readonly onEnded: () => void,
  ) {}

  follow(endpoint: BoundEndpoint): void {
    const { channel } = this;
    this.#queue = endpoint.watchRequests({
      take: (lines) => channel.write(Buffer.from(lines)),
      // What a cut stream holds is no longer counted.
      hold: (bytes) => this.#isCut || channel.keep(bytes),
      end: () => this.end(),
    });
  }

  end(): void {
    this.#stop();
    this.channel.end();
  }

  onData(): void {}

  onDrain(): void {
    this.#queue?.resume();
  }

  onEnd(): void {
    this.end();
  }

  onClosed(): void {
    this.#stop();
  }

  /** The session holds too much memory. The agent asks again later. */
  onCut(): void {
    this.#isCut = true;
    this.#stop();
    this.channel.abort();
  }

  #stop(): void {
    this.#queue?.close();
    this.onEnded();
  }
}
