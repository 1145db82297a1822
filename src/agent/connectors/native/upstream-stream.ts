import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Channel, ChannelReceiver } from '../../../agent-protocol/channel.ts';
import { dialFailure } from '../../../agent-protocol/dial-failure.ts';
import type { LinkUse } from '../../../agent-protocol/heartbeat.ts';
import { ProxyHeader } from '../../../agent-protocol/messages.ts';
import { type ConnectionEnd, type ConnectionTraffic, UpstreamFault } from '../connector.ts';

/** How long an upstream may take to read the rest of a stream that has ended, in milliseconds. */
const LINGER_MS = 60_000;

/**
 * Joins a stream of the session to a connection of the upstream. Each side's end and reset reach the other as what they
 * are, and a side that does not read slows down only this stream.
 */
export class UpstreamStream implements ChannelReceiver {
  #socket: Socket | null = null;
  /** Bytes for the upstream until it is connected. */
  #early: Buffer[] = [];
  /** Bytes that wait for it, as the session counts them. */
  #waiting = 0;
  /** Whether data beyond the header was credited. */
  #accepted = false;
  #ended = false;
  #endedBy: ConnectionEnd | null = null;
  #closed = false;
  readonly #traffic: ConnectionTraffic | undefined;
  readonly #use: LinkUse;
  readonly #onBytes: ((count: number) => void) | undefined;
  readonly #onClosed: () => void;

  constructor(
    private readonly channel: Channel,
    {
      connecting,
      isHttp,
      traffic,
      use,
      onBytes,
      onClosed,
    }: {
      /** The upstream's connection, paused. */
      connecting: Promise<Socket>;
      /** Whether clients get a response of their own when the upstream is unreachable. */
      isHttp: boolean;
      /** Undefined: nobody looks. */
      traffic: ConnectionTraffic | undefined;
      use: LinkUse;
      /** Undefined: nobody counts. */
      onBytes: ((count: number) => void) | undefined;
      onClosed: () => void;
    },
  ) {
    this.#traffic = traffic;
    this.#use = use;
    this.#onBytes = onBytes;
    this.#onClosed = onClosed;
    // Tells the gateway that the stream was taken, so that it opens further ones.
    channel.acknowledge();
    channel.pause();
    connecting.then(
      (socket) => this.#join(socket),
      (error: unknown) => this.#fail(isHttp, error),
    );
  }

  onData(payload: Buffer): void {
    this.#use.note(true);
    this.#onBytes?.(payload.length);
    this.#traffic?.fromClient(payload);
    if (!this.#accepted) this.#accept();
    if (this.#socket === null) {
      // Copied, so that nothing larger is kept.
      this.#early.push(Buffer.from(payload));
      this.#waits(this.#waiting + payload.length);
    } else if (!this.#socket.destroyed && !this.#socket.write(payload)) {
      this.channel.pause();
      this.#waits(this.#socket.writableLength);
    }
  }

  #waits(bytes: number): void {
    this.channel.keep(bytes - this.#waiting);
    this.#waiting = bytes;
  }

  /** Tells the gateway that the stream is read, however late the upstream answers. */
  #accept(): void {
    this.#accepted = true;
    this.channel.acknowledge();
  }

  onEnd(): void {
    this.#ended = true;
    this.#endedBy ??= 'client';
    this.#socket?.end();
  }

  onDrain(): void {
    this.#socket?.resume();
  }

  onClosed(error?: Error): void {
    this.#closed = true;
    this.#endedBy ??= 'client';
    this.#onClosed();
    this.#early = [];
    const socket = this.#socket;
    if (socket === null) {
      this.#traffic?.closed(false, 'client');
      return;
    }
    if (error) reset(socket);
    else socket.setTimeout(LINGER_MS, () => socket.destroy());
  }

  #join(socket: Socket): void {
    if (this.#closed) {
      socket.destroy();
      return;
    }
    const { channel } = this;
    this.#socket = socket;
    socket.on('data', (chunk: Buffer) => {
      this.#accepted = true;
      this.#use.note(false);
      this.#onBytes?.(chunk.length);
      this.#traffic?.toClient(chunk);
      if (!channel.write(chunk)) socket.pause();
    });
    socket.on('drain', () => {
      this.#waits(0);
      channel.resume();
    });
    socket.on('end', () => {
      this.#endedBy ??= 'upstream';
      channel.end();
    });
    socket.on('error', () => {
      this.#endedBy ??= 'upstream';
      socket.destroy();
    });
    socket.on('close', () => {
      const isInOrder = socket.readableEnded && socket.writableFinished;
      this.#traffic?.closed(socket.readableEnded, this.#endedBy ?? 'upstream');
      if (isInOrder) return;
      // Nobody reads the rest of an upload, but the client gets the answer.
      channel.resume();
      channel.abortWhenSent();
    });
    for (const bytes of this.#early) socket.write(bytes);
    this.#early = [];
    this.#waits(socket.writableNeedDrain ? socket.writableLength : 0);
    channel.resume();
    if (this.#ended) socket.end();
  }

  #fail(isHttp: boolean, error: unknown): void {
    if (this.#closed) return;
    this.#traffic?.failed(error);
    if (isHttp) {
      this.channel.receiver = { onData() {}, onEnd() {}, onClosed: (error) => this.onClosed(error) };
      this.channel.resume();
      // As the SDK does (1.7.0); our gateway makes its own page of it.
      this.channel.write(Buffer.from(dialFailure(error instanceof UpstreamFault ? error.summary : null)));
      this.channel.end();
    } else {
      this.channel.abort();
    }
  }
}

function reset(socket: Socket): void {
  // Only TCP connections have a reset.
  if (socket instanceof TLSSocket || socket.remoteAddress === undefined) socket.destroy();
  else socket.resetAndDestroy();
}

const LENGTH_BYTES = 8;
/** Far more than a header has. */
const MAX_HEADER = 4096;

/**
 * Reads the header of a stream for a client's connection, then passes the stream on. The header's length is little endian,
 * unlike everything else (`@ngrok/ngrok` 1.7.0).
 */
export class ProxyStream implements ChannelReceiver {
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
