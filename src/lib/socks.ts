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
  1: 'it fails in general',
  2: 'its rules do not allow it',
  3: 'the network cannot be reached',
  4: 'the host cannot be reached',
  5: 'the connection is refused there',
  6: 'it took too long',
  7: 'it knows no CONNECT',
  8: 'it knows no such address',
};

/**
 * Asks a SOCKS 5 proxy (RFC 1928) for a connection; names are resolved by the proxy.
 *
 * @param socket connected to the proxy; from then on to the destination
 * @throws {Error} saying why not
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
    throw new Error(credentials ? 'it takes no user and password' : 'it wants a user and password');
  if (credentials) await authenticate(socket, credentials);
  socket.write(Buffer.concat([Buffer.from([VERSION, CONNECT, 0]), encodeAddress(destination)]));
  const [, reply = 1, , type] = await read(socket, 4);
  if (reply !== 0) throw new Error(REPLIES[reply] ?? `it answers with code ${reply}`);
  await skipAddress(socket, type);
}

/** RFC 1929. */
async function authenticate(socket: Socket, { user, password }: { user: string; password: string }): Promise<void> {
  socket.write(Buffer.concat([Buffer.from([1]), counted(user), counted(password)]));
  const [, status] = await read(socket, 2);
  if (status !== 0) throw new Error('it refuses the user and password');
}

function encodeAddress({ host, port }: Destination): Buffer {
  const ports = Buffer.from([port >> 8, port & 0xff]);
  const address = addressBytes(host);
  if (address) return Buffer.concat([Buffer.from([address.length === 4 ? IPV4 : IPV6]), address, ports]);
  return Buffer.concat([Buffer.from([NAME]), counted(host), ports]);
}

/** Where the proxy connects from, which nobody here needs. */
async function skipAddress(socket: Socket, type: number | undefined): Promise<void> {
  if (type === IPV4) return void (await read(socket, 4 + 2));
  if (type === IPV6) return void (await read(socket, 16 + 2));
  const [length = 0] = await read(socket, 1);
  await read(socket, length + 2);
}

function counted(text: string): Buffer {
  const bytes = Buffer.from(text);
  if (bytes.length > 255) throw new Error('a name, user or password is longer than SOCKS can carry');
  return Buffer.concat([Buffer.from([bytes.length]), bytes]);
}

/** Takes exactly so many bytes; what follows stays in the socket. */
async function read(socket: Socket, length: number): Promise<Buffer> {
  const over = new AbortController();
  socket.once('close', () => over.abort());
  for (;;) {
    const bytes: Buffer | null = socket.read(length);
    if (bytes?.length === length) return bytes;
    // At its end a socket gives what it still has, and closes.
    if (socket.destroyed || bytes) throw socket.errored ?? new Error('it hung up');
    await once(socket, 'readable', { signal: over.signal }).catch((error: unknown) => {
      if (!over.signal.aborted) throw error;
    });
  }
}
