import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';

/** Closes a connection so that the peer cannot mistake it for an orderly end. */
export function resetConnection(socket: Socket): void {
  // Node resets plain connections only; for TLS, a missing close_notify tells as much.
  if (socket instanceof TLSSocket) socket.destroy();
  else socket.resetAndDestroy();
}
