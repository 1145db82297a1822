import type { Socket } from 'node:net';

/**
 * Parses what a connection begins with, and leaves its bytes unread.
 *
 * @param parse called with all bytes so far; undefined: it needs more
 * @returns what `parse` returns; null when the connection ended before
 */
export function peek<T>(socket: Socket, parse: (bytes: Buffer) => T | null | undefined): Promise<T | null> {
  return new Promise((resolve) => {
    let received: Buffer = Buffer.alloc(0);
    const read = () => {
      const chunk: Buffer | null = socket.read();
      if (chunk === null) return;
      received = Buffer.concat([received, chunk]);
      const found = parse(received);
      if (found === undefined) return;
      socket.off('readable', read).off('end', end).off('close', closed);
      socket.unshift(received);
      resolve(found);
    };
    const end = () => socket.destroy();
    const closed = () => resolve(null);
    socket.on('readable', read).on('end', end).on('close', closed);
  });
}
