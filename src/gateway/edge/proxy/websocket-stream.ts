import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { messageOf } from '../../../lib/errors.ts';
import {
  type Frame,
  FrameReader,
  frameHead,
  Opcode,
  WebSocketProtocolError,
} from '../../../lib/http/web-socket-frames.ts';

/** Close codes (RFC 6455, section 7.4.1). */
const CloseCode = { normal: 1000, protocolError: 1002, internalError: 1011 } as const;

/** Bytes buffered for a slow upstream before the client is paused. */
const BUFFER = 65_536;
/** Unread bytes above which pings go unanswered, as they may (RFC 6455, 5.5.3). */
const MAX_UNREAD = 65_536;
/** Milliseconds without a byte after which a closing connection is destroyed. */
const CLOSE_MS = 5000;

/** Milliseconds between pings: browsers send none, and idle connections should stay open. */
const PING_EVERY = 60_000;

type Done = (error?: Error | null) => void;

/** The bytes in a client's WebSocket messages; the upstream's go out as binary ones. The end is a close frame. */
export class WebSocketStream extends Duplex {
  readonly #socket: Socket;
  readonly #reader: FrameReader;
  /** Payload of a control frame; null in a message. */
  #control: Buffer[] | null = null;
  #closeSent = false;
  #closeSeen = false;
  #onDrained: Done | null = null;
  readonly #pings: NodeJS.Timeout;

  constructor(socket: Socket, pingEvery = PING_EVERY) {
    super({ readableHighWaterMark: BUFFER, writableHighWaterMark: BUFFER });
    this.#socket = socket;
    this.#reader = new FrameReader(
      { masked: true, compression: false },
      {
        onFrame: ({ opcode }) => {
          this.#control = opcode >= Opcode.close ? [] : null;
        },
        onPayload: (piece) => {
          if (this.#control) this.#control.push(piece);
          else if (!this.push(piece)) socket.pause();
        },
        onFrameEnd: (frame) => this.#onFrameEnd(frame),
      },
    );
    this.on('error', () => {});
    socket.on('data', (chunk: Buffer) => this.#onData(chunk));
    socket.on('drain', () => this.#drained());
    socket.on('end', () => this.#closeSeen || this.destroy(new ClientDisconnected()));
    socket.on('close', () => this.destroy(this.#closeSeen ? undefined : new ClientDisconnected()));
    this.#pings = setInterval(() => this.#ping(), pingEvery).unref();
    socket.resume();
  }

  override _read(): void {
    this.#socket.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    // Nothing may follow a close frame (RFC 6455, 5.5.1).
    if (this.#closeSent || this.#send(Opcode.binary, chunk)) done();
    else this.#onDrained = done;
  }

  override _final(done: Done): void {
    this.#close(CloseCode.normal);
    done();
  }

  override _destroy(error: Error | null, done: Done): void {
    clearInterval(this.#pings);
    this.#close(error instanceof WebSocketProtocolError ? CloseCode.protocolError : CloseCode.internalError);
    this.#socket.resume();
    this.#socket.destroySoon();
    this.#drained();
    done(error);
  }

  #onData(chunk: Buffer): void {
    if (this.destroyed) return;
    try {
      this.#reader.read(chunk);
    } catch (error) {
      this.destroy(error instanceof Error ? error : new Error(messageOf(error)));
    }
  }

  #onFrameEnd({ opcode }: Frame): void {
    const payload = Buffer.concat(this.#control ?? []);
    if (opcode === Opcode.ping) {
      if (!this.#closeSent && this.#socket.writableLength < MAX_UNREAD) this.#send(Opcode.pong, payload);
    } else if (opcode === Opcode.close) {
      const code = closeCodeOf(payload);
      this.#closeSeen = true;
      this.#close(code);
      this.push(null);
    }
  }

  #ping(): void {
    if (!this.#closeSent && this.#socket.writableLength === 0) this.#send(Opcode.ping, Buffer.alloc(0));
  }

  /** Sends a close frame; a client that does not answer in time is disconnected. */
  #close(code: number): void {
    if (this.#closeSent) return;
    this.#closeSent = true;
    const payload = Buffer.alloc(2);
    payload.writeUInt16BE(code);
    this.#send(Opcode.close, payload);
    this.#socket.setTimeout(CLOSE_MS, () => this.#socket.destroy());
  }

  /** @returns false when the writer should wait until the socket has drained */
  #send(opcode: number, payload: Buffer): boolean {
    if (this.#socket.destroyed) return true;
    this.#socket.cork();
    this.#socket.write(frameHead(opcode, payload.length));
    const room = this.#socket.write(payload);
    this.#socket.uncork();
    return room;
  }

  #drained(): void {
    const done = this.#onDrained;
    this.#onDrained = null;
    done?.();
  }
}

class ClientDisconnected extends Error {
  constructor() {
    super('client disconnected');
    this.name = 'ClientDisconnected';
  }
}

/** Codes that must not be sent (RFC 6455, section 7.4.1). */
const NEVER_SENT: ReadonlySet<number> = new Set([1004, 1005, 1006, 1015]);

function closeCodeOf(payload: Buffer): number {
  if (payload.length === 0) return CloseCode.normal;
  const code = payload.length === 1 ? 0 : payload.readUInt16BE(0);
  if (code >= 1000 && code < 5000 && !NEVER_SENT.has(code)) return code;
  throw new WebSocketProtocolError('invalid close code');
}
