import type { ApiResponse } from './router.ts';

/** Answers with JSON. */
export function sendJson(res: ApiResponse, value: unknown, status = 200): void {
  send(res, status, 'application/json; charset=utf-8', JSON.stringify(value));
}

export function sendText(res: ApiResponse, contentType: string, text: string): void {
  send(res, 200, contentType, text);
}

/** Answers that it is done, and that there is nothing to say about it. */
export function sendNothing(res: ApiResponse): void {
  res.writeHead(204);
  res.end();
}

function send(res: ApiResponse, status: number, contentType: string, text: string): void {
  res.setHeader('Content-Type', contentType);
  res.setHeader('Content-Length', Buffer.byteLength(text));
  res.writeHead(status);
  res.end(text);
}
