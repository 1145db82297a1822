import type { RequestListener } from 'node:http';
import type { Socket } from 'node:net';

/** Requests that a client may send ahead of an answer: none that is known sends more than one. */
const MAX_AHEAD = 32;

/**
 * Serves the requests of a connection one after another. Node would hand over at once what a client sends ahead: thousands of
 * requests, whatever delays their answers. It also reads on while a body is read, so a client that sends too many is cut off.
 */
export function inTurn(serve: RequestListener): RequestListener {
  /** Of connections with an unanswered request, the requests that follow it. */
  const following = new WeakMap<Socket, (() => void)[]>();
  const serveNext = (socket: Socket) => {
    const waiting = following.get(socket) ?? [];
    const next = waiting.shift();
    if (next === undefined || socket.destroyed) following.delete(socket);
    else next();
    // The body of the last one may still have to be read.
    if (waiting.length === 0) socket.resume();
  };
  return (req, res) => {
    const { socket } = req;
    const waiting = following.get(socket);
    const start = () => {
      res.once('close', () => serveNext(socket));
      serve(req, res);
    };
    if (waiting === undefined) {
      following.set(socket, []);
      start();
    } else if (waiting.push(start) > MAX_AHEAD) {
      socket.destroy();
    } else {
      socket.pause();
    }
  };
}
