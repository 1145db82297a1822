import { type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import { type ApiError, errorBody } from '../errors.ts';

/** Statuses other than 400, by the code of Node's error. */
const STATUSES: Readonly<Record<string, number>> = { ERR_HTTP_REQUEST_TIMEOUT: 408, HPE_HEADER_OVERFLOW: 431 };

/**
 * Gives an error body to what Node's HTTP server answers on its own and without one: malformed requests, and
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
  // Replaces Node's 417: a server may ignore expectations it does not support (RFC 9110, 10.1.1).
  server.on('checkExpectation', (req, res) => server.emit('request', req, res));
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
