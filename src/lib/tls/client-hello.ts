import type { Socket } from 'node:net';

/** The parts of a TLS ClientHello that routing needs. */
export interface ClientHello {
  /** The host name (RFC 6066, section 3), as sent; empty without one. */
  serverName: string;
  /** The application protocols (RFC 7301), in the client's order of preference. */
  protocols: readonly string[];
}

/** Bytes; real ones have some hundreds, two thousand with post-quantum keys. */
const MAX_HELLO = 16 * 1024;
/** A real one fits into one record; joining many tiny ones again and again would be expensive. */
const MAX_RECORDS = 32;
const HANDSHAKE_RECORD = 22;
const CLIENT_HELLO = 1;
const SERVER_NAME = 0;
const PROTOCOLS = 16;
const RANDOM_BYTES = 32;

/**
 * Parses what a connection begins with, and leaves its bytes unread.
 *
 * @param parse called with all bytes so far; undefined: it needs more
 * @param late aborts when it has taken too long
 * @returns what `parse` returns; null when the connection ended before, or it took too long
 */
export function peek<T>(
  socket: Socket,
  parse: (bytes: Buffer) => T | null | undefined,
  late?: AbortSignal,
): Promise<T | null> {
  return new Promise((resolve) => {
    let received: Buffer = Buffer.alloc(0);
    const read = () => {
      const chunk: Buffer | null = socket.read();
      if (chunk === null) return;
      received = Buffer.concat([received, chunk]);
      const found = parse(received);
      if (found !== undefined) finish(found);
    };
    const finish = (found: T | null) => {
      socket.off('readable', read).off('end', end).off('close', closed);
      if (received.length > 0) socket.unshift(received);
      resolve(found);
    };
    const end = () => socket.destroy();
    const closed = () => resolve(null);
    socket.on('readable', read).on('end', end).on('close', closed);
    late?.addEventListener('abort', () => !socket.destroyed && finish(null), { once: true });
  });
}

/**
 * Parses a ClientHello (RFC 8446, section 4.1.2; older versions do not differ in the parts that are read).
 *
 * @param bytes received so far
 * @returns undefined when incomplete; null when it is not a ClientHello
 */
export function parseClientHello(bytes: Buffer): ClientHello | null | undefined {
  const { message, isOver } = joinRecords(bytes);
  const incomplete = isOver ? null : undefined;
  if (message.length < 4) return incomplete;
  const length = message.readUIntBE(1, 3);
  if (message[0] !== CLIENT_HELLO || length > MAX_HELLO) return null;
  if (message.length < 4 + length) return incomplete;
  try {
    return readBody(new Bytes(message.subarray(4, 4 + length)));
  } catch (error) {
    if (error instanceof RangeError) return null;
    throw error;
  }
}

/**
 * Joins the handshake records (RFC 8446, section 5.1) at the start of a connection.
 *
 * @returns `isOver`: no further record belongs to the message
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
  // Host name is the only defined type, and is ASCII.
  return list.number(1) === 0 ? list.vector(2).text() : '';
}

function readProtocols(content: Bytes): string[] {
  const protocols: string[] = [];
  for (const list = content.vector(2); !list.isEmpty; ) protocols.push(list.vector(1).text());
  return protocols;
}

/** Reads bytes from first to last; reading beyond the end throws a RangeError. */
class Bytes {
  constructor(private rest: Buffer) {}

  get isEmpty(): boolean {
    return this.rest.length === 0;
  }

  take(count: number): Buffer {
    if (count > this.rest.length) throw new RangeError('beyond the end');
    const taken = this.rest.subarray(0, count);
    this.rest = this.rest.subarray(count);
    return taken;
  }

  number(bytes: 1 | 2): number {
    return this.take(bytes).readUIntBE(0, bytes);
  }

  /** Reads a vector whose length comes first, in one or two bytes. */
  vector(lengthBytes: 1 | 2): Bytes {
    return new Bytes(this.take(this.number(lengthBytes)));
  }

  text(): string {
    return this.rest.toString('latin1');
  }
}
