import { type Agent, type IncomingHttpHeaders, type IncomingMessage, request } from 'node:http';
import { collect } from './edge.ts';

export interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  rawHeaders: string[];
  trailers: NodeJS.Dict<string>;
  /** False when the connection failed before the end. */
  complete: boolean;
  body: string;
}

export interface Ask {
  method?: string;
  path?: string;
  headers?: Record<string, string | string[]>;
  body?: string | Buffer;
  /** By default, a new connection. */
  agent?: Agent;
  /** An address of this machine; another one is another client network. Left out: 127.0.0.1. */
  localAddress?: string;
  /** Ends the request, as a client that leaves. */
  signal?: AbortSignal;
}

/** Sends a request to 127.0.0.1 with the given Host header. */
export async function ask(port: number, host: string, options: Ask = {}): Promise<Answer> {
  const { body, ...rest } = await askRaw(port, host, options);
  return { ...rest, body: body.toString() };
}

/** Like {@link ask}, with the body as bytes. */
export async function askRaw(
  port: number,
  host: string,
  { path = '/', body, ...rest }: Ask = {},
): Promise<Omit<Answer, 'body'> & { body: Buffer }> {
  const res = await new Promise<IncomingMessage>((resolve, reject) => {
    const { headers, method = body === undefined ? 'GET' : 'POST', agent = false, localAddress, signal } = rest;
    const from = { host: '127.0.0.1', port, localAddress, signal };
    request({ ...from, path, method, agent, headers: { host, ...headers } }, resolve)
      .on('error', reject)
      .end(body);
  });
  const bytes = await collect(res);
  const { statusCode = 0, headers, rawHeaders, trailers, complete } = res;
  return { status: statusCode, headers, rawHeaders, trailers, complete, body: bytes };
}
