import { lookup } from 'node:dns';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import type { LookupFunction } from 'node:net';
import { text } from 'node:stream/consumers';
import type { Fetch } from './transport.ts';

/**
 * A fetch for https alone that trusts the given authority in place of the public ones, which Node's own fetch cannot:
 * it would need an environment variable at the start of the process, or the exact undici that Node was built with.
 *
 * Names below `localhost` lead to this machine, as they do in browsers and curl (RFC 6761, section 6.3), whether or
 * not the system's resolver knows of them.
 *
 * @param ca PEM
 */
export function fetchTrusting(ca: string): Fetch {
  return (url, { method = 'GET', headers, body, signal }) =>
    new Promise((resolve, reject) => {
      const options = { method, headers: Object.fromEntries(new Headers(headers)), ca, lookup: lookupName };
      const call = request(url, { ...options, ...(signal && { signal }) }, (message) => {
        toResponse(message).then(resolve, reject);
      });
      call.on('error', reject);
      call.end(body ?? undefined);
    });
}

const lookupName: LookupFunction = (hostname, options, done) => {
  const isLocal = /(^|\.)localhost$/i.test(hostname);
  lookup(isLocal ? '127.0.0.1' : hostname, options, done);
};

async function toResponse(message: IncomingMessage): Promise<Response> {
  const body = await text(message);
  const headers = Object.entries(message.headersDistinct).flatMap(([name, values = []]) =>
    values.map((value): [string, string] => [name, value]),
  );
  const { statusCode: status = 0 } = message;
  // A 204 must be given no body, not even an empty one.
  return new Response(body === '' ? null : body, { status, headers });
}
