import { gzipSync } from 'node:zlib';
import { expect, it } from 'vitest';
import { z } from 'zod';
import { harText } from '../../../src/agent/inspector/har.ts';
import { setUpCapture, TUNNEL } from './captured.ts';

const Text = z.strictObject({ name: z.string(), value: z.string() });
/** -1: unknown. */
const Size = z.int().min(-1);
const Message = {
  httpVersion: z.literal('HTTP/1.1'),
  cookies: z.array(Text),
  headers: z.array(Text),
  headersSize: Size,
  bodySize: Size,
};
/** HTTP archive 1.2, with the members that Chrome adds. */
const Har = z.strictObject({
  log: z.strictObject({
    version: z.literal('1.2'),
    creator: z.strictObject({ name: z.string(), version: z.string() }),
    pages: z.array(z.never()),
    entries: z.array(
      z.strictObject({
        startedDateTime: z.iso.datetime(),
        time: z.number().min(0),
        request: z.strictObject({
          ...Message,
          method: z.string(),
          url: z.url(),
          queryString: z.array(Text),
          postData: z
            .strictObject({ mimeType: z.string(), text: z.string(), _encoding: z.literal('base64').optional() })
            .optional(),
        }),
        response: z.strictObject({
          ...Message,
          status: z.int().min(0),
          statusText: z.string(),
          redirectURL: z.string(),
          content: z.strictObject({
            size: z.int().min(0),
            compression: z.int().optional(),
            mimeType: z.string(),
            text: z.string().optional(),
            encoding: z.literal('base64').optional(),
            comment: z.string().optional(),
          }),
          _error: z.string().optional(),
        }),
        cache: z.strictObject({}),
        timings: z.strictObject({ send: z.number().min(0), wait: z.number().min(0), receive: z.number().min(0) }),
        comment: z.string().optional(),
        _resourceType: z.literal('websocket').optional(),
        _webSocketMessages: z
          .array(
            z.strictObject({
              type: z.enum(['send', 'receive']),
              time: z.number(),
              opcode: z.int(),
              data: z.string(),
            }),
          )
          .optional(),
      }),
    ),
  }),
});

it('an HTTP archive of every kind of exchange has the members of the standard and of Chrome, and no others', async () => {
  const { store, client } = setUpCapture();
  const pass = (path: string, answer: string, request = '') => {
    const { capture, client, upstream } = setUpCapture(store);
    client(`POST ${path} HTTP/1.1\r\nHost: cam.example.com\r\n${request || '\r\n'}`);
    upstream(answer);
    return capture;
  };
  const zipped = gzipSync('{"a":[1]}').toString('latin1');
  pass('/form?x=1&x=', 'HTTP/1.1 302 Found\r\nLocation: /b\r\nSet-Cookie: s=1\r\n\r\n', 'Content-Length: 3\r\n\r\nq=1');
  pass(
    '/zipped',
    `HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: ${zipped.length}\r\n\r\n${zipped}`,
    'Cookie: a=1; b\r\nContent-Length: 2\r\n\r\n\xff\xd8',
  );
  pass('/events', 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: a\n\n');
  pass('/broken', '').closed(false, 'upstream');
  const upgrade = 'Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n';
  pass('/socket', `HTTP/1.1 101 Switching Protocols\r\n${upgrade}\x81\x05hello\x82\x01\xff`, upgrade);
  client('\r\nnot HTTP\r\n\r\n');
  let text = '';
  const options = { version: '1.2.3', url: 'https://cam.example.com', reveal: true };
  for await (const piece of harText(store.listOldestFirst(TUNNEL), options)) text += piece;
  const { entries } = Har.parse(JSON.parse(text)).log;
  expect(entries.map(({ request, response }) => [new URL(request.url).pathname, response.status])).toEqual([
    ['/form', 302],
    ['/zipped', 200],
    ['/events', 200],
    ['/broken', 0],
    ['/socket', 101],
  ]);
  expect(entries[4]?._webSocketMessages?.map(({ type, opcode, data }) => [type, opcode, data])).toEqual([
    ['receive', 1, 'hello'],
    ['receive', 2, '/w=='],
  ]);
});
