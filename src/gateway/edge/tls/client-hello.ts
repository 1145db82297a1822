import type { Socket } from 'node:net';

/** What a TLS client asks for before anything is agreed on. */
export interface ClientHello {
  /** The host name (RFC 6066, section 3), as it was sent; empty when there is none. */
  serverName: string;
  /** The application protocols (RFC 7301), the client's favourite first. */
  protocols: readonly string[];
}

/** Bytes; real ones have some hundreds, with post-quantum keys two thousand. */
const MAX_HELLO = 16 * 1024;
/** They fit into one; what comes in crumbs would be put together again with each of them. */
const MAX_RECORDS = 32;
const HANDSHAKE_RECORD = 22;
const CLIENT_HELLO = 1;
const SERVER_NAME = 0;
const PROTOCOLS = 16;
const RANDOM_BYTES = 32;

/**
 * Reads what a connection begins with, and leaves it there for whoever takes the connection next.
 *
 * @returns null when it is no hello, or the connection ended before it was complete
 */
export function readClientHello(socket: Socket): Promise<ClientHello | null> {
  return new Promise((resolve) => {
    let seen = Buffer.alloc(0);
    const look = () => {
      const chunk: Buffer | null = socket.read();
      if (chunk === null) return;
      seen = Buffer.concat([seen, chunk]);
      const hello = parseClientHello(seen);
      if (hello === undefined) return;
      socket.off('readable', look).off('end', end).off('close', closed);
      socket.unshift(seen);
      resolve(hello);
    };
    const end = () => socket.destroy();
    const closed = () => resolve(null);
    socket.on('readable', look).on('end', end).on('close', closed);
  });
}

/**
 * Reads a ClientHello (RFC 8446, section 4.1.2, and those before, which differ in nothing that matters here).
 *
 * @param bytes what came so far
 * @returns undefined when there is more to come; null when it is no ClientHello
 */
export function parseClientHello(bytes: Buffer): ClientHello | null | undefined {
  const { message, isOver } = joinRecords(bytes);
  const unfinished = isOver ? null : undefined;
  if (message.length < 4) return unfinished;
  const length = message.readUIntBE(1, 3);
  if (message[0] !== CLIENT_HELLO || length > MAX_HELLO) return null;
  if (message.length < 4 + length) return unfinished;
  try {
    return readBody(new Bytes(message.subarray(4, 4 + length)));
  } catch (error) {
    if (error instanceof RangeError) return null;
    throw error;
  }
}

/**
 * What the handshake records (RFC 8446, section 5.1) hold that a connection begins with.
 *
 * @returns `isOver`: no more can come, for something else follows
 */
function joinRecords(bytes: Buffer): { message: Buffer; isOver: boolean } {
  const parts: Buffer[] = [];
  for (let at = 0; at < bytes.length; ) {
    const isOver = bytes[at] !== HANDSHAKE_RECORD || parts.length === MAX_RECORDS;
    if (isOver) return { message: Buffer.concat(parts), isOver };
    if (at + 5 > bytes.length) break;
    const length = bytes.readUInt16BE(at + 3);
    parts.push(bytes.subarray(at + 5, at + 5 + length));
    at += 5 + length;
  }
  return { message: Buffer.concat(parts), isOver: false };
}

function readBody(body: Bytes): ClientHello {
  body.take(2 + RANDOM_BYTES);
  body.vector(1); // session
  body.vector(2); // cipher suites
  body.vector(1); // compression methods
  const hello = { serverName: '', protocols: [] as string[] };
  if (body.isEmpty) return hello;
  for (const extensions = body.vector(2); !extensions.isEmpty; ) {
    const type = extensions.number(2);
    const content = extensions.vector(2);
    if (type === SERVER_NAME) hello.serverName = readServerName(content);
    if (type === PROTOCOLS) hello.protocols = readProtocols(content);
  }
  return hello;
}

function readServerName(content: Bytes): string {
  const list = content.vector(2);
  // The only type there is, a host name, which is ASCII.
  return list.number(1) === 0 ? list.vector(2).text() : '';
}

function readProtocols(content: Bytes): string[] {
  const protocols: string[] = [];
  for (const list = content.vector(2); !list.isEmpty; ) protocols.push(list.vector(1).text());
  return protocols;
}

/** Takes bytes apart, from first to last; reading beyond the end is a RangeError. */
class Bytes {
  #rest: Buffer;

  constructor(bytes: Buffer) {
    this.#rest = bytes;
  }

  get isEmpty(): boolean {
    return this.#rest.length === 0;
  }

  take(count: number): Buffer {
    if (count > this.#rest.length) throw new RangeError('beyond the end');
    const taken = this.#rest.subarray(0, count);
    this.#rest = this.#rest.subarray(count);
    return taken;
  }

  number(bytes: 1 | 2): number {
    return this.take(bytes).readUIntBE(0, bytes);
  }

  /** As much as the number in front says, which has one or two bytes. */
  vector(lengthBytes: 1 | 2): Bytes {
    return new Bytes(this.take(this.number(lengthBytes)));
  }

  text(): string {
    return this.#rest.toString('latin1');
  }
}
