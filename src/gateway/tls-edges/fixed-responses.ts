import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { ApiError } from '../../lib/errors.ts';
import { answerProtocolErrors } from '../../lib/http/http-server.ts';
import type { HttpResponseBackendRow } from '../store/tls-edges.ts';

/** For the request and its response together. */
const REQUEST_MS = 30_000;
/** Follow from the connection and the body; the backend's own are ignored. Node throws at Trailer with a known length. */
const OWN_HEADERS: ReadonlySet<string> = new Set([
  'connection',
  'content-length',
  'keep-alive',
  'trailer',
  'transfer-encoding',
]);

/** Answers HTTP requests with the fixed response of an `http_response` backend, one request per connection. */
export class FixedResponses {
  readonly #server: Server = createServer((req, res) => this.#answer(req, res));
  readonly #backends = new WeakMap<Socket, HttpResponseBackendRow>();

  constructor() {
    answerProtocolErrors(this.#server, (status, message) => new ApiError(status, 'ERR_NGROK_3004', message));
  }

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
    // An unread request body could keep the client from reading the response.
    req.resume();
    const headers = Object.entries(backend.headers ?? {}).filter(([name]) => !OWN_HEADERS.has(name.toLowerCase()));
    // These two have neither body nor length (RFC 9110, 8.6).
    const isBodyless = backend.status_code === 204 || backend.status_code === 304;
    if (!isBodyless) headers.push(['content-length', String(Buffer.byteLength(backend.body))]);
    res.writeHead(backend.status_code, Object.fromEntries(headers)).end(isBodyless ? '' : backend.body);
  }
}
