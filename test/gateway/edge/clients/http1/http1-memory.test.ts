import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { afterEach, expect, it } from 'vitest';
import { TestEdge } from '../../../../support/edge.ts';
import { until } from '../../../../support/until.ts';

const HOST = 'memory.localhost';
const STRANGER = '127.0.0.9';
const head = (method: string, more = '') => `${method} / HTTP/1.1\r\nHost: ${HOST}\r\n${more}`;
const line = (bytes: number) => `X-Much: ${'x'.repeat(bytes)}\r\n`;

/** What each of some connections sends. */
const ATTACKS: [what: string, connections: number, bytes: string][] = [
  ['unfinished heads', 20, head('GET', line(30_000))],
  ['an unfinished head as long as that of browsers with too many cookies', 1, head('GET', line(900_000))],
  ['small unfinished heads', 60, head('GET', line(6000))],
  ['small heads of waiting requests', 60, `${head('GET', line(3000))}\r\n`],
  ['unfinished trailers', 20, `${head('POST', 'Transfer-Encoding: chunked\r\n')}\r\n0\r\n${line(30_000)}`],
  ['requests behind one that waits', 60, `${head('GET')}\r\n`.repeat(150)],
];

const open: Socket[] = [];
let edge: TestEdge;
afterEach(async () => {
  for (const socket of open.splice(0)) socket.destroy();
  await edge.close();
});

async function enter(localAddress: string): Promise<Socket> {
  const socket = connect({ port: edge.httpPort, host: '127.0.0.1', localAddress }).on('error', () => {});
  open.push(socket);
  await once(socket, 'connect');
  return socket.resume();
}

it.each(ATTACKS)(
  'clients cannot use up the memory with %s, and those of other networks stay',
  async (_what, connections, bytes) => {
    edge = await TestEdge.start({ httpLimits: { memory: 400_000 } });
    const endpoint = await edge.serve(HOST, () => {});
    // The upstream neither reads nor answers.
    endpoint.open = () => new Duplex({ read() {}, write() {}, highWaterMark: 1 });
    const honest = await enter('127.0.0.1');
    honest.write(`${head('GET')}\r\n`);
    const attackers: Socket[] = [];
    for (let at = 0; at < connections; at++) attackers.push(await enter(STRANGER));
    for (const attacker of attackers) attacker.write(bytes);
    await until(() => attackers.some(({ destroyed }) => destroyed), 'some of the attackers are disconnected');
    expect(honest.destroyed).toBe(false);
  },
);
