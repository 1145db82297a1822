import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';

/** Cuts a client off in a way that it cannot take for an orderly end. */
export function resetConnection(socket: Socket): void {
  // Node resets plain connections alone; TLS without a close_notify is as plain.
  if (socket instanceof TLSSocket) socket.destroy();
  else socket.resetAndDestroy();
}
