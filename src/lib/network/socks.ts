import { once } from 'node:events';
import type { Socket } from 'node:net';
import { addressBytes } from './ip-address.ts';
import type { Destination, ProxyServer } from './proxy-rules.ts';

const VERSION = 5;
const NO_AUTHENTICATION = 0;
const USER_AND_PASSWORD = 2;
const CONNECT = 1;
const IPV4 = 1;
const NAME = 3;
const IPV6 = 4;

/** RFC 1928, section 6. */
const REPLIES: Readonly<Record<number, string>> = {
  1: 'general failure',
  2: 'its rules do not allow the connection',
  3: 'network unreachable',
  4: 'host unreachable',
  5: 'connection refused',
  6: 'connection timed out',
  7: 'it does not support CONNECT',
  8: 'it does not support this type of address',
};

/**
 * Connects to a destination through a SOCKS 5 proxy (RFC 1928), which resolves the name.
 *
 * @param socket connected to the proxy; afterwards it leads to the destination
 * @throws {Error} with the reason for the failure
 */
export async function connectBySocks(
  socket: Socket,
  destination: Destination,
  credentials: ProxyServer['credentials'],
): Promise<void> {
  const method = credentials ? USER_AND_PASSWORD : NO_AUTHENTICATION;
  socket.write(Buffer.from([VERSION, 1, method]));
  const [version, chosen] = await read(socket, 2);
  if (version !== VERSION) throw new Error('it does not speak SOCKS 5');
  if (chosen !== method)
    throw new Error(credentials ? 'it does not accept user and password' : 'it requires a user and password');
  if (credentials) await authenticate(socket, credentials);
  socket.write(Buffer.concat([Buffer.from([VERSION, CONNECT, 0]), encodeAddress(destination)]));
  const [, reply = 1, , type] = await read(socket, 4);
  if (reply !== 0) throw new Error(REPLIES[reply] ?? `reply code ${reply}`);
  await skipAddress(socket, type);
}

/** RFC 1929. */
async function authenticate(socket: Socket, { user, password }: { user: string; password: string }): Promise<void> {
  socket.write(Buffer.concat([Buffer.from([1]), lengthPrefixed(user), lengthPrefixed(password)]));
  const [, status] = await read(socket, 2);
  if (status !== 0) throw new Error('user and password rejected');
}

function encodeAddress({ host, port }: Destination): Buffer {
  const ports = Buffer.from([port >> 8, port & 0xff]);
  const address = addressBytes(host);
  if (address) return Buffer.concat([Buffer.from([address.length === 4 ? IPV4 : IPV6]), address, ports]);
  return Buffer.concat([Buffer.from([NAME]), lengthPrefixed(host), ports]);
}

async function skipAddress(socket: Socket, type: number | undefined): Promise<void> {
  if (type === IPV4) return void (await read(socket, 4 + 2));
  if (type === IPV6) return void (await read(socket, 16 + 2));
  const [length = 0] = await read(socket, 1);
  await read(socket, length + 2);
}

function lengthPrefixed(text: string): Buffer {
  const bytes = Buffer.from(text);
  if (bytes.length > 255) throw new Error('name, user or password is longer than 255 bytes');
  return Buffer.concat([Buffer.from([bytes.length]), bytes]);
}

/** Reads exactly `length` bytes; later bytes stay in the socket. */
async function read(socket: Socket, length: number): Promise<Buffer> {
  const closed = new AbortController();
  const close = () => closed.abort();
  socket.once('close', close);
  try {
    for (;;) {
      const bytes: Buffer | null = socket.read(length);
      if (bytes?.length === length) return bytes;
      // A socket that has ended returns fewer bytes and closes.
      if (socket.destroyed || bytes) throw socket.errored ?? new Error('the proxy closed the connection');
      await once(socket, 'readable', { signal: closed.signal }).catch((error: unknown) => {
        if (!closed.signal.aborted) throw error;
      });
    }
  } finally {
    socket.off('close', close);
  }
}
