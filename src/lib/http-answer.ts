import type { ServerResponse } from 'node:http';

/** Answers with JSON. */
export function sendJson(res: ServerResponse, value: unknown, status = 200): void {
  send(res, status, 'application/json; charset=utf-8', JSON.stringify(value));
}

export function sendText(res: ServerResponse, contentType: string, text: string): void {
  send(res, 200, contentType, text);
}

/** Answers that it is done, and that there is nothing to say about it. */
export function sendNothing(res: ServerResponse): void {
  res.writeHead(204);
  res.end();
}

function send(res: ServerResponse, status: number, contentType: string, text: string): void {
  res.setHeader('Content-Type', contentType);
  res.setHeader('Content-Length', Buffer.byteLength(text));
  res.writeHead(status);
  res.end(text);
}
