import { once } from 'node:events';
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls';
import { closeOf } from './until.ts';

/** RFC 9113, section 6. */
export const Frame = {
  data: 0,
  headers: 1,
  priority: 2,
  reset: 3,
  settings: 4,
  pushPromise: 5,
  ping: 6,
  goaway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const;

/** Flags of RFC 9113, section 6; their meaning depends on the frame type. */
export const Flag = { endStream: 1, ack: 1, endHeaders: 4, padded: 8, priority: 32 } as const;

/** RFC 9113, section 7. */
export const Code = {
  none: 0,
  protocol: 1,
  internal: 2,
  flowControl: 3,
  streamClosed: 5,
  frameSize: 6,
  refused: 7,
  cancel: 8,
  compression: 9,
  calm: 11,
} as const;

/** What an HTTP/2 client sends first (RFC 9113, 3.4). */
export const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n';
const HEAD = 9;

export interface ReceivedFrame {
  type: number;
  flags: number;
  stream: number;
  payload: Buffer;
}

/** A frame; `length` may differ from the payload's. */
export function frame(type: number, flags: number, stream: number, payload: Buffer | string = ''): Buffer {
  const bytes = Buffer.from(payload as string, 'latin1');
  const head = Buffer.alloc(HEAD);
  head.writeUIntBE(bytes.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, bytes]);
}

export type Fields = readonly (readonly [name: string, value: string])[];

/** Headers as unindexed HPACK literals (RFC 7541, 6.2.2), without validation. */
export function block(fields: Fields): Buffer {
  return Buffer.concat(fields.map(([name, value]) => Buffer.concat([Buffer.from([0]), text(name), text(value)])));
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value, 'latin1');
  const length = bytes.length;
  if (length < 127) return Buffer.concat([Buffer.from([length]), bytes]);
  const rest: number[] = [127];
  let left = length - 127;
  for (; left >= 128; left = Math.floor(left / 128)) rest.push((left % 128) + 128);
  return Buffer.concat([Buffer.from([...rest, left]), bytes]);
}

export function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value >>> 0);
  return bytes;
}

/** A SETTINGS entry. */
export function setting(id: number, value: number): Buffer {
  const bytes = Buffer.alloc(6);
  bytes.writeUInt16BE(id);
  bytes.writeUInt32BE(value >>> 0, 2);
  return bytes;
}

/** The fields of a GET request for `/` of a host, and HEADERS frames of such requests. */
export function requestsTo(host: string) {
  const fields: Fields = [
    [':method', 'GET'],
    [':scheme', 'https'],
    [':authority', host],
    [':path', '/'],
  ];
  const without = (name: string): Fields => fields.filter(([field]) => field !== name);
  const set = (name: string, value: string): Fields =>
    fields.map((field) => (field[0] === name ? [name, value] : field));
  /** A request without a body. */
  const get = (stream: number, sent = fields) =>
    frame(Frame.headers, Flag.endStream | Flag.endHeaders, stream, block(sent));
  /** A request whose body follows, with further fields. */
  const post = (stream: number, further: Fields = []) =>
    frame(Frame.headers, Flag.endHeaders, stream, block([...set(':method', 'POST'), ...further]));
  return { fields, without, set, get, post };
}

/** An HTTP/2 connection with full control of every byte. */
export class RawHttp2 {
  readonly socket: TLSSocket;
  readonly #frames: ReceivedFrame[] = [];
  readonly #waiting: (() => void)[] = [];
  #bytes: Buffer = Buffer.alloc(0);

  private constructor(socket: TLSSocket) {
    this.socket = socket;
    socket.on('data', (chunk: Buffer) => this.#take(chunk));
    socket.on('error', () => {});
    socket.on('close', () => this.#wake());
  }

  /** Connects, and sends the preface and empty settings, or other first bytes; from another address of this machine. */
  static async open(
    { httpsPort, ca }: { httpsPort: number; ca: { caPem: string } },
    servername: string,
    beginning: Buffer | string = Buffer.concat([Buffer.from(PREFACE), frame(Frame.settings, 0, 0)]),
    localAddress = '127.0.0.1',
  ): Promise<RawHttp2> {
    const options = {
      host: '127.0.0.1',
      localAddress,
      port: httpsPort,
      servername,
      ca: ca.caPem,
      ALPNProtocols: ['h2'],
    };
    const socket = connect(options as ConnectionOptions);
    await once(socket, 'secureConnect');
    const raw = new RawHttp2(socket);
    socket.write(beginning as string, 'latin1');
    return raw;
  }

  send(...frames: Buffer[]): void {
    this.socket.write(Buffer.concat(frames));
  }

  /** The next unread frame that matches; null when the connection closes first. */
  async next(fits: (frame: ReceivedFrame) => boolean): Promise<ReceivedFrame | null> {
    for (;;) {
      const at = this.#frames.findIndex(fits);
      if (at !== -1) return this.#frames.splice(at, 1)[0] ?? null;
      if (this.socket.destroyed || this.socket.readableEnded) return null;
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  /** Waits for GOAWAY or the end of the connection. */
  async end(): Promise<void> {
    await this.next(({ type }) => type === Frame.goaway);
  }

  /** Waits until the server closes the connection. */
  async closed(): Promise<void> {
    await closeOf(this.socket);
  }

  /** The outcome of a stream: its reset code or its response. */
  async outcome(stream: number): Promise<{ reset: number } | { answered: true } | null> {
    const decisive: readonly number[] = [Frame.reset, Frame.headers];
    const frame = await this.next((next) => next.stream === stream && decisive.includes(next.type));
    if (frame === null) return null;
    return frame.type === Frame.reset ? { reset: frame.payload.readUInt32BE() } : { answered: true };
  }

  #take(chunk: Buffer): void {
    this.#bytes = Buffer.concat([this.#bytes, chunk]);
    while (this.#bytes.length >= HEAD) {
      const end = HEAD + this.#bytes.readUIntBE(0, 3);
      if (this.#bytes.length < end) break;
      const [type, flags] = [this.#bytes.readUInt8(3), this.#bytes.readUInt8(4)];
      const stream = this.#bytes.readUInt32BE(5);
      this.#frames.push({ type, flags, stream, payload: this.#bytes.subarray(HEAD, end) });
      this.#bytes = this.#bytes.subarray(end);
    }
    this.#wake();
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}
