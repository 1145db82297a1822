import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';

/** A peer that says nothing gets no longer than this; what an answer has to look like does not depend on it. */
const PATIENCE_MS = 25;
const GIVE_UP_MS = 1_000;

/**
 * Sends bytes to a port of the loopback, whatever they are, and hangs up once there is an answer.
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
  const patience = new AbortController();
  socket.on('data', (piece: Buffer) => {
    pieces.push(piece);
    patience.abort();
  });
  await Promise.race([once(socket, tls ? 'secureConnect' : 'connect').catch(() => {}), closed]);
  socket.write(bytes);
  const timer = setTimeout(() => patience.abort(), PATIENCE_MS);
  await Promise.race([closed, new Promise((resolve) => patience.signal.addEventListener('abort', resolve))]);
  socket.end();
  await closed;
  clearTimeout(timer);
  clearTimeout(giveUp);
  return Buffer.concat(pieces).toString('latin1');
}

/** The status of the first answer that is not interim; null when there is none. */
export function statusOf(answer: string): number | null {
  const status = /^(?:HTTP\/1\.1 1\d\d .*?\r\n\r\n)*HTTP\/1\.1 (\d{3}) /s.exec(answer)?.[1];
  return status === undefined ? null : Number(status);
}

/** Whether a status tells of a failure of ours: 501, 502 and 503 are honest words about others. */
export function isFailureOfOurs(status: number | null): boolean {
  return status !== null && status >= 500 && ![501, 502, 503].includes(status);
}
