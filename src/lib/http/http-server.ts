import { type IncomingMessage, type RequestListener, type Server, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type ApiError, errorBody } from '../errors.ts';

/** Milliseconds for the client to read the last response. */
const LINGER_MS = 1000;

/** Statuses other than 400, by the code of Node's error. */
const STATUSES: Readonly<Record<string, number>> = { ERR_HTTP_REQUEST_TIMEOUT: 408, HPE_HEADER_OVERFLOW: 431 };

/**
 * Gives an error body to what Node's HTTP server answers on its own and without one: malformed requests, CONNECT, and
 * expectations it does not know.
 *
 * @param refusal the API's error for such a request
 */
export function answerProtocolErrors(server: Server, refusal: (status: number, message: string) => ApiError): void {
  const latest = new WeakMap<Duplex, ServerResponse<IncomingMessage>>();
  server.on('request', ({ socket }, response) => latest.set(socket, response));
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    // Extra bytes after the client's last request: it is still answered, and then the connection ends.
    if (error.code === 'HPE_CLOSED_CONNECTION') return;
    const response = latest.get(socket);
    if (error.code === 'ECONNRESET' || !socket.writable) socket.destroy();
    // The request has its answer: the client would take a second one for the answer to its next request.
    else if (response?.headersSent && !(response.req.complete && response.writableFinished)) socket.end();
    else socket.end(wholeResponse(refusal(STATUSES[error.code ?? ''] ?? 400, reason(error))));
  });
  // Node would close the connection without an answer.
  server.on('connect', (_req, socket) => {
    // An error is followed by 'close'.
    socket.on('error', () => {});
    const before = latest.get(socket);
    const refuse = () => close(socket, refusal(400, 'CONNECT is not supported: this server is not a proxy'));
    if (before === undefined || before.writableFinished) refuse();
    else before.once('close', refuse);
  });
  // Replaces Node's 417: a server may ignore expectations it does not support (RFC 9110, 10.1.1).
  server.on('checkExpectation', (req, res) => server.emit('request', req, res));
}

/** Sends a last response, and discards what the client still sends: unread, it would reset the connection. */
function close(socket: Duplex, error: ApiError): void {
  socket.resume().end(wholeResponse(error), () => {
    const timer = setTimeout(() => socket.destroy(), LINGER_MS).unref();
    socket.once('close', () => clearTimeout(timer));
  });
}

function reason({ code, message }: NodeJS.ErrnoException): string {
  return code === 'ERR_HTTP_REQUEST_TIMEOUT'
    ? 'the request did not arrive in time'
    : `malformed request: ${code ?? message}`;
}

function wholeResponse(error: ApiError): string {
  const body = `${JSON.stringify(errorBody(error))}\n`;
  return (
    `HTTP/1.1 ${error.status} ${STATUS_CODES[error.status]}\r\nConnection: close\r\n` +
    `Content-Type: application/json; charset=utf-8\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
  );
}

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
      replaceInvalidTarget(req);
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

/**
 * Replaces a request target without a valid path, such as `http://name@`, by one that no route serves. Express would
 * answer it with an HTML page.
 */
function replaceInvalidTarget(req: IncomingMessage): void {
  const { url = '' } = req;
  if (!url.startsWith('/') && !URL.canParse(url, 'http://localhost')) req.url = '/invalid-target';
}

/**
 * Node's closeIdleConnections() keeps connections without a request so far, and those that become idle later. Clients
 * with keep-alive would make every stop take the whole grace time.
 *
 * @returns closes all idle connections now, and all others after their answer
 */
export function trackIdleConnections(server: Server): () => void {
  const idle = new Set<Socket>();
  let closing = false;
  server.on('connection', (socket: Socket) => {
    idle.add(socket);
    socket.once('close', () => idle.delete(socket));
  });
  server.on('request', ({ socket }, response) => {
    idle.delete(socket);
    response.once('close', () => {
      if (closing) socket.destroySoon();
      else if (!socket.destroyed) idle.add(socket);
    });
  });
  return () => {
    closing = true;
    for (const socket of idle) socket.destroy();
  };
}
