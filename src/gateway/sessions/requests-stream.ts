import type { Channel, ChannelReceiver } from '../../agent-protocol/channel.ts';
import { JsonScanner } from '../../agent-protocol/json-scanner.ts';
import { parseMessage, RequestsRequest } from '../../agent-protocol/messages.ts';
import { RpcError, rpcErrorText } from '../../agent-protocol/rpc-error.ts';
import type { ReportQueue } from '../endpoints/request-feed.ts';
import type { BoundEndpoint } from './bound-endpoint.ts';

const LIMITS = { bytes: 1_024, values: 16 };

/** Open streams of one session with reports of requests. */
export class RequestsStreams {
  readonly #open = new Set<RequestsStream>();

  /**
   * @param max streams at a time
   * @param named finds the session's endpoint with that id; throws an {@link RpcError} when there is none
   */
  constructor(
    private readonly max: number,
    private readonly named: (id: string) => BoundEndpoint,
  ) {}

  /** Serves a stream that the agent has opened. */
  serve(channel: Channel): ChannelReceiver {
    const begin = (stream: RequestsStream, id: string) => {
      if (this.#open.size >= this.max) {
        throw new RpcError('ERR_NGROK_301', `too many feeds of requests: one session can have ${this.max}`);
      }
      stream.follow(this.named(id));
      this.#open.add(stream);
    };
    return new RequestsStream(channel, begin, (stream) => this.#open.delete(stream));
  }
}

/** A stream on which an agent gets reports of the requests to one of its endpoints: a line of JSON for each. */
class RequestsStream implements ChannelReceiver {
  readonly #request = new JsonScanner(LIMITS);
  #queue: ReportQueue | null = null;
  #isAsked = false;
  #isCut = false;

  constructor(
    private readonly channel: Channel,
    private readonly begin: (stream: RequestsStream, id: string) => void,
    private readonly onEnded: (stream: RequestsStream) => void,
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

  /** Ends the stream after what the agent has got so far. */
  end(): void {
    this.#stop();
    this.channel.end();
  }

  onData(payload: Buffer): void {
    if (this.#isAsked) return;
    this.channel.keep(payload.length);
    try {
      if (!this.#request.push(payload)) return;
      this.#isAsked = true;
      this.begin(this, parseMessage(RequestsRequest, this.#request.parse(), 'ERR_NGROK_301').Id);
    } catch (error) {
      this.#refuse(error);
    }
  }

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

  #refuse(cause: unknown): void {
    this.#isAsked = true;
    const error = cause instanceof RpcError ? cause : new RpcError('ERR_NGROK_301', 'the request is not a JSON object');
    this.channel.write(Buffer.from(`${JSON.stringify({ Error: rpcErrorText(error) })}\n`));
    this.end();
  }

  #stop(): void {
    this.#queue?.close();
    this.onEnded(this);
  }
}
