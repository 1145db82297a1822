import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';

/** How long to wait for a silent peer; no assertion depends on it. */
const DEADLINE_MS = 25;
const GIVE_UP_MS = 1_000;

/**
 * Sends bytes to a port of the loopback and closes the connection once there is a response.
 *
 * @param tls given: over TLS
 * @returns what came back; empty when nothing did
 */
export async function sendBytes(port: number, bytes: Buffer | string, tls?: ConnectionOptions): Promise<string> {
  const socket: Socket = tls
    ? connectTls({ host: '127.0.0.1', port, ...tls })
    : connect({ host: '127.0.0.1', port, allowHalfOpen: true });
  const pieces: Buffer[] = [];
  const closed = new Promise<void>((resolve) => {
    socket.on('error', () => {}).once('close', () => resolve());
  });
  const giveUp = setTimeout(() => socket.destroy(), GIVE_UP_MS);
  const deadline = new AbortController();
  socket.on('data', (piece: Buffer) => {
    pieces.push(piece);
    deadline.abort();
  });
  await Promise.race([once(socket, tls ? 'secureConnect' : 'connect').catch(() => {}), closed]);
  socket.write(bytes);
  const timer = setTimeout(() => deadline.abort(), DEADLINE_MS);
  await Promise.race([closed, new Promise((resolve) => deadline.signal.addEventListener('abort', resolve))]);
  socket.end();
  await closed;
  clearTimeout(timer);
  clearTimeout(giveUp);
  return Buffer.concat(pieces).toString('latin1');
}

/** The status of the first final response; null without one. */
export function statusOf(answer: string): number | null {
  const status = /^(?:HTTP\/1\.1 1\d\d .*?\r\n\r\n)*HTTP\/1\.1 (\d{3}) /s.exec(answer)?.[1];
  return status === undefined ? null : Number(status);
}

/** Whether a status is an internal error: 501, 502 and 503 are valid reports about others. */
export function isFailureOfOurs(status: number | null): boolean {
  return status !== null && status >= 500 && ![501, 502, 503].includes(status);
}
