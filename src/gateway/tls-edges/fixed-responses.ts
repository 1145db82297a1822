import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { HttpResponseBackendRow } from '../store/backends.ts';

/** Until a request is there, and until its answer has left. */
const REQUEST_MS = 30_000;
/**
 * Decided by the connection and the body, not by whoever set the backend up. Node throws at a Trailer header with a body
 * whose length is known.
 */
const OWN_HEADERS: ReadonlySet<string> = new Set([
  'connection',
  'content-length',
  'keep-alive',
  'trailer',
  'transfer-encoding',
]);

/** Answers HTTP requests with what a backend of the kind `http_response` holds: one on each connection. */
export class FixedResponses {
  readonly #server: Server = createServer((req, res) => this.#answer(req, res));
  readonly #backends = new WeakMap<Socket, HttpResponseBackendRow>();

  /** Takes a connection over. */
  serve(socket: Socket, backend: HttpResponseBackendRow): void {
    this.#backends.set(socket, backend);
    const timer = setTimeout(() => socket.destroy(), REQUEST_MS);
    socket.once('close', () => clearTimeout(timer));
    this.#server.emit('connection', socket);
  }

  #answer(req: IncomingMessage, res: ServerResponse): void {
    const backend = this.#backends.get(req.socket);
    res.shouldKeepAlive = false;
    if (!backend) {
      res.destroy();
      return;
    }
    // A body that nobody wants must not keep the answer from being read.
    req.resume();
    const headers = Object.entries(backend.headers ?? {}).filter(([name]) => !OWN_HEADERS.has(name.toLowerCase()));
    // These two never have a body, nor a length (RFC 9110, 8.6).
    const isBare = backend.status_code === 204 || backend.status_code === 304;
    if (!isBare) headers.push(['content-length', String(Buffer.byteLength(backend.body))]);
    res.writeHead(backend.status_code, Object.fromEntries(headers)).end(isBare ? '' : backend.body);
  }
}
