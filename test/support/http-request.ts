import { type IncomingHttpHeaders, type IncomingMessage, request } from 'node:http';
import { collect } from './edge.ts';

export interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  rawHeaders: string[];
  trailers: NodeJS.Dict<string>;
  /** False when the connection broke before the end. */
  complete: boolean;
  body: string;
}

export interface Ask {
  method?: string;
  path?: string;
  headers?: Record<string, string | string[]>;
  body?: string | Buffer;
}

/** Sends a request to 127.0.0.1 that names `host`, on a connection of its own. */
export async function ask(port: number, host: string, { path = '/', body, ...rest }: Ask = {}): Promise<Answer> {
  const res = await new Promise<IncomingMessage>((resolve, reject) => {
    const { headers, method = body === undefined ? 'GET' : 'POST' } = rest;
    request({ host: '127.0.0.1', port, path, method, agent: false, headers: { host, ...headers } }, resolve)
      .on('error', reject)
      .end(body);
  });
  const text = (await collect(res)).toString();
  const { statusCode = 0, headers, rawHeaders, trailers, complete } = res;
  return { status: statusCode, headers, rawHeaders, trailers, complete, body: text };
}
