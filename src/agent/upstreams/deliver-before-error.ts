import type { Socket } from 'node:net';
import { hasErrno } from '../../lib/errors.ts';

/**
 * Has a connected socket deliver everything that the peer sent before it closed the connection, and only then its error.
 * Node destroys a socket when a write fails or a reset is read, and drops what nobody has read yet. That loses the answer of
 * a device that refuses an upload and closes: the bytes that it leaves unread reset the connection behind the answer.
 *
 * What is written after such a failure is discarded.
 */
export function deliverBeforeError(socket: Socket): void {
  const { _write: write, _writev: writev, read, push, destroy } = socket;
  /** Why the peer reads nothing more. */
  let failure: Error | null = null;

  const destroyWhenRead = (error: Error): Socket => {
    if (socket.readableLength === 0) return destroy.call(socket, error);
    // It emits what it reads.
    socket.read = (size) => {
      const piece: unknown = read.call(socket, size);
      if (socket.readableLength === 0) destroy.call(socket, error);
      return piece;
    };
    return socket;
  };
  const fails = (error: Error): void => {
    failure = error;
    socket.once('end', () => destroy.call(socket, error));
    // The peer's end came before its reset, unlike here: Linux reports the reset once, and then an end.
    if (hasErrno(error, 'EPIPE')) return;
    socket.push = (piece, encoding) => (piece !== null ? push.call(socket, piece, encoding) : !destroyWhenRead(error));
  };
  const afterWrite = (done: (error?: Error | null) => void) => (error?: Error | null) => {
    const isGone = error && (hasErrno(error, 'EPIPE') || hasErrno(error, 'ECONNRESET'));
    if (!isGone || socket.readableEnded) return done(error);
    if (failure === null) fails(error);
    done();
  };

  socket._write = (chunk, encoding, done) =>
    failure === null ? write.call(socket, chunk, encoding, afterWrite(done)) : done();
  socket._writev = (chunks, done) => (failure === null ? writev?.call(socket, chunks, afterWrite(done)) : done());
  socket.destroy = (error) => {
    const isRead = hasErrno(error, 'ECONNRESET') || (error as NodeJS.ErrnoException | undefined)?.syscall === 'read';
    return error && isRead && !socket.destroyed ? destroyWhenRead(error) : destroy.call(socket, error);
  };
}
