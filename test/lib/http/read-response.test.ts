import { request } from 'node:http';
import { createServer, type Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { ResponseTooLong, readResponse, type WholeResponse } from '../../../src/lib/http/read-response.ts';
import { serving } from '../../support/loopback.ts';

const MAX_BYTES = 262_144;
const OK = 'HTTP/1.1 200 OK\r\n';
const CHUNKED = `${OK}Transfer-Encoding: chunked\r\n\r\n`;
const HINTS = 'HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n';
const long = (letter: string) => letter.repeat(1_000);

/** Reads what a server answers, which repeats its last part until the connection ends. */
async function read(start: string, endless = '') {
  let closed: () => void = () => {};
  const ended = new Promise<void>((resolve) => {
    closed = resolve;
  });
  const port = await serving(
    createServer((socket) => {
      socket.on('error', () => {}).on('close', closed);
      socket.once('data', () => {
        socket.write(start);
        if (endless !== '') repeat(socket, endless.repeat(Math.ceil(16_384 / endless.length)));
      });
    }),
  );
  let workMs = 0;
  const made = request({ port, agent: false, signal: AbortSignal.timeout(60_000) }).end();
  const response = readResponse(made, { maxBytes: MAX_BYTES }, (ms) => {
    workMs = ms;
  });
  const outcome = await response.catch((error: unknown) => error);
  await ended;
  return { outcome, workMs };
}

function repeat(socket: Socket, text: string): void {
  while (socket.writable && socket.write(text));
  if (socket.writable) socket.once('drain', () => repeat(socket, text));
}

describe('readResponse', () => {
  it('reads a response after a few interim ones, and says what it took', async () => {
    const { outcome, workMs } = await read(`${HINTS.repeat(10)}${OK}Content-Length: 2\r\nConnection: close\r\n\r\nhi`);
    expect(outcome).toMatchObject({ head: { statusCode: 200 }, body: Buffer.from('hi'), address: '127.0.0.1' });
    expect(workMs).toBeGreaterThan(0);
    expect(workMs).toBeLessThan(1);
  });

  it('reads a body of many small chunks', async () => {
    const chunk = `64\r\n${'x'.repeat(100)}\r\n`;
    const { outcome, workMs } = await read(`${CHUNKED}${chunk.repeat(2_600)}0\r\n\r\n`);
    expect((outcome as WholeResponse).body.equals(Buffer.alloc(260_000, 'x'))).toBe(true);
    expect(workMs).toBeGreaterThan(5);
  });

  it.each<[string, string, string, RegExp]>([
    ['interim responses', '', HINTS, /more than 10 interim responses/],
    ['interim responses of a few bytes', '', 'HTTP/1.1 102\r\n\r\n', /more than 10 interim responses/],
    [
      'interim responses before each of its headers',
      '',
      `HTTP/1.1 103 a\r\na: ${long('a')}\r\n\r\n`,
      /interim|besides/,
    ],
    ['headers', OK, `a: ${long('a')}\r\n`, /Overflow|overflow/],
    ['one header', `${OK}a: `, long('a'), /Overflow|overflow/],
    ['trailers', `${CHUNKED}0\r\n`, `a: ${long('a')}\r\n`, /Overflow|overflow|besides its content/],
    ['chunks of one byte', CHUNKED, '1\r\nx\r\n', /more than 65536 bytes besides its content/],
    ['extensions of chunks', CHUNKED, `2;a=${long('a')}\r\nxx\r\n`, /besides its content/],
    ['one extension of a chunk', `${CHUNKED}2;a=`, long('a'), /Overflow|overflow|besides/],
    ['zeros before the length of a chunk', CHUNKED, `${long('0')}2\r\nxx\r\n`, /besides its content|Parse Error/],
    ['a body', `${OK}\r\n`, long('a'), /longer than 262144 bytes/],
    ['a body in chunks', CHUNKED, `3e8\r\n${long('a')}\r\n`, /longer than 262144 bytes/],
  ])('ends the connection when a server sends endless %s', async (_, start, endless, reason) => {
    const { outcome, workMs } = await read(start, endless);
    expect(outcome).toMatchObject({ message: expect.stringMatching(reason) });
    expect(workMs).toBeGreaterThan(0);
  });

  it('names a body that is too long by its class', async () => {
    expect((await read(`${OK}\r\n`, long('a'))).outcome).toBeInstanceOf(ResponseTooLong);
  });

  it.each([
    ['before the head', ''],
    ['within the head', `${OK}a: `],
    ['within the body', `${OK}Content-Length: 5\r\n\r\nhi`],
    ['within a chunk', `${CHUNKED}5\r\nhi`],
  ])('fails when the server closes the connection %s', async (_, text) => {
    const port = await serving(
      createServer((socket) => {
        socket.once('data', () => socket.end(text));
      }),
    );
    await expect(readResponse(request({ port, agent: false }).end(), { maxBytes: MAX_BYTES })).rejects.toThrow();
  });
});
