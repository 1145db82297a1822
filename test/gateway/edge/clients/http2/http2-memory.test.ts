import { Duplex } from 'node:stream';
import { afterEach, expect, it } from 'vitest';
import { TestEdge } from '../../../../support/edge.ts';
import { block, type Fields, Flag, Frame, frame, PREFACE, RawHttp2 } from '../../../../support/raw-http2.ts';
import { until } from '../../../../support/until.ts';

const HOST = 'memory.localhost';
const STRANGER = '127.0.0.9';
const fields = (method: string, more: Fields = []): Fields => [
  [':method', method],
  [':scheme', 'https'],
  [':authority', HOST],
  [':path', '/'],
  ...more,
];
const LARGE: Fields = Array.from({ length: 3 }, (_, at) => [`x-${at}`, 'a'.repeat(5000)]);
const STREAMS = Array.from({ length: 30 }, (_, at) => 1 + 2 * at);
const POST = block(fields('POST'));

/** One connection's frames. */
const ATTACKS: [string, () => Buffer[]][] = [
  [
    'heads of waiting requests',
    () => STREAMS.map((id) => frame(Frame.headers, Flag.endStream | Flag.endHeaders, id, block(fields('GET', LARGE)))),
  ],
  [
    'unfinished heads',
    () => [
      frame(Frame.headers, Flag.endStream, 1, block(fields('GET'))),
      ...LARGE.map((field) => frame(Frame.continuation, 0, 1, block([field]))),
    ],
  ],
  [
    'unread bodies',
    () =>
      STREAMS.flatMap((id) => [
        frame(Frame.headers, Flag.endHeaders, id, POST),
        frame(Frame.data, 0, id, Buffer.alloc(16_000)),
        frame(Frame.data, 0, id, Buffer.alloc(16_000)),
      ]),
  ],
  [
    'unread bodies in pieces of a byte',
    () => [frame(Frame.headers, Flag.endHeaders, 1, POST), ...Array(5000).fill(frame(Frame.data, 0, 1, 'a'))],
  ],
];

const open: RawHttp2[] = [];
let edge: TestEdge;
afterEach(async () => {
  for (const { socket } of open.splice(0)) socket.destroy();
  await edge.close();
});

async function connect(address: string): Promise<RawHttp2> {
  const raw = await RawHttp2.open(
    edge,
    HOST,
    Buffer.concat([Buffer.from(PREFACE), frame(Frame.settings, 0, 0)]),
    address,
  );
  open.push(raw);
  return raw;
}

it.each(ATTACKS)(
  'clients cannot use up the memory with %s, and those of other networks stay',
  async (_what, frames) => {
    edge = await TestEdge.start({ httpLimits: { memory: 400_000 } });
    const endpoint = await edge.serve(HOST, () => {}, { protocol: 'https' });
    // The upstream neither reads nor answers.
    endpoint.open = () => new Duplex({ read() {}, write() {}, highWaterMark: 1 });
    const honest = await connect('127.0.0.1');
    honest.send(frame(Frame.headers, Flag.endHeaders, 1, POST));
    const attackers: RawHttp2[] = [];
    for (let at = 0; at < 20; at++) attackers.push(await connect(STRANGER));
    for (const attacker of attackers) attacker.send(...frames());
    const left = () => attackers.filter(({ socket }) => !socket.destroyed).length;
    await until(() => left() <= 17, 'some of the attackers are disconnected');
    expect(honest.socket.destroyed).toBe(false);
  },
);
