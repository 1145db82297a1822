import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';

/** A request that the server received. */
export interface Received {
  method: string;
  url: string;
  headers: IncomingMessage['headers'];
  body: string;
}

type Answer = (request: Received, res: ServerResponse) => void;

/** An HTTP server with scripted responses; the last one repeats. */
export interface HttpService {
  url: string;
  received: Received[];
  server: Server;
  close(): Promise<void>;
}

export async function startHttpService(...answers: Answer[]): Promise<HttpService> {
  const received: Received[] = [];
  const server = createServer(async (req, res) => {
    const request = { method: req.method ?? '', url: req.url ?? '', headers: req.headers, body: await text(req) };
    received.push(request);
    answers[Math.min(received.length, answers.length) - 1]?.(request, res);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received,
    server,
    close: () => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

/** A JSON response. */
export function json(status: number, body: unknown, headers: Record<string, string> = {}): Answer {
  return (_, res) =>
    void res.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body));
}

/** An error response of the management API. */
export function refuse(status: number, code: string | null, headers: Record<string, string> = {}): Answer {
  const body = {
    ...(code && { error_code: code }),
    status_code: status,
    msg: 'No.',
    details: { operation_id: 'op_1' },
  };
  return json(status, body, headers);
}
