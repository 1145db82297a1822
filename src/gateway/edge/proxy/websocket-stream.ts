import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { messageOf } from '../../../lib/errors.ts';
import { CloseCode, FrameReader, frameHead, Opcode, WebSocketFault } from './websocket-frames.ts';

/** Bytes buffered for a slow upstream before the client is slowed down. */
const BUFFER = 65_536;
/** Answers to pings that a client has not read; more are left out, as they may be (RFC 6455, 5.5.3). */
const MAX_UNREAD = 65_536;
/** Milliseconds without a byte after which a connection is cut that is being closed. */
const CLOSE_MS = 5000;

/** Milliseconds between pings: a browser sends none itself, and a quiet connection is to stay. */
const PING_EVERY = 60_000;

type Done = (error?: Error | null) => void;

/**
 * The bytes that a client sends and gets in binary WebSocket messages, as a stream. An end is a close frame, in both
 * directions; a connection that breaks off without one is an error.
 */
export class WebSocketStream extends Duplex {
  readonly #socket: Socket;
  readonly #reader: FrameReader;
  #closeSent = false;
  #closeSeen = false;
  #whenDrained: Done | null = null;
  readonly #pings: NodeJS.Timeout;

  /** @param socket of a client that has been told to go on with WebSocket */
  constructor(socket: Socket, pingEvery = PING_EVERY) {
    super({ readableHighWaterMark: BUFFER, writableHighWaterMark: BUFFER });
    this.#socket = socket;
    this.#reader = new FrameReader({
      onBytes: (piece) => {
        if (!this.push(piece)) socket.pause();
      },
      onControl: (opcode, payload) => this.#onControl(opcode, payload),
    });
    // A stream that is cut while nobody listens must not end the process.
    this.on('error', () => {});
    socket.on('data', (chunk: Buffer) => this.#onData(chunk));
    socket.on('drain', () => this.#drained());
    socket.on('end', () => this.#closeSeen || this.destroy(new BrokenOff()));
    socket.on('close', () => this.destroy(this.#closeSeen ? undefined : new BrokenOff()));
    this.#pings = setInterval(() => this.#ping(), pingEvery).unref();
    socket.resume();
  }

  override _read(): void {
    this.#socket.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    // After a close frame there is no more to be sent (RFC 6455, 5.5.1).
    if (this.#closeSent || this.#send(Opcode.binary, chunk)) done();
    else this.#whenDrained = done;
  }

  override _final(done: Done): void {
    this.#close(CloseCode.normal);
    done();
  }

  override _destroy(error: Error | null, done: Done): void {
    clearInterval(this.#pings);
    this.#close(error instanceof WebSocketFault ? error.code : CloseCode.internalError);
    this.#socket.resume();
    this.#socket.destroySoon();
    this.#drained();
    done(error);
  }

  #onData(chunk: Buffer): void {
    if (this.destroyed) return;
    try {
      this.#reader.push(chunk);
    } catch (error) {
      this.destroy(error instanceof Error ? error : new Error(messageOf(error)));
    }
  }

  #onControl(opcode: number, payload: Buffer): void {
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

  /** Says that nothing follows; what the client does not answer in time is cut. */
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
    const done = this.#whenDrained;
    this.#whenDrained = null;
    done?.();
  }
}

class BrokenOff extends Error {
  constructor() {
    super('the client broke off');
    this.name = 'BrokenOff';
  }
}

/** Codes that are never sent (RFC 6455, section 7.4.1). */
const NEVER_SENT: ReadonlySet<number> = new Set([1004, 1005, 1006, 1015]);

function closeCodeOf(payload: Buffer): number {
  if (payload.length === 0) return CloseCode.normal;
  const code = payload.length === 1 ? 0 : payload.readUInt16BE(0);
  if (code >= 1000 && code < 5000 && !NEVER_SENT.has(code)) return code;
  throw new WebSocketFault(CloseCode.protocolError, 'the reason to close is none');
}
