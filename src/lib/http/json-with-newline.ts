import type { Express, Response } from 'express';

/** Makes an app's JSON responses end with a newline, so that a terminal shows its prompt on a line of its own. */
export function endJsonWithNewline(app: Express): void {
  app.response.json = function json(this: Response, body: unknown): Response {
    if (!this.hasHeader('Content-Type')) this.type('json');
    return this.send(`${JSON.stringify(body)}\n`);
  };
}
