import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { connect as connectTls, createSecureContext } from 'node:tls';
import { expect, it, onTestFinished, vi } from 'vitest';
import { noteArrival } from '../../../src/lib/time/loop-turn.ts';
import { performHandshake } from '../../../src/lib/tls/server-handshake.ts';
import { TLS_SERVER_OPTIONS } from '../../../src/lib/tls/tls-options.ts';
import { listening } from '../../support/loopback.ts';
import { selfSigned } from '../../support/self-signed.ts';
import { helloOf } from '../../support/tls-records.ts';

/** A connection to a server, and the server's side of it. */
async function pair(): Promise<{ client: Socket; accepted: Socket }> {
  const server = createServer();
  const port = await listening(server);
  const client = connect(port, '127.0.0.1').on('error', () => {});
  const [accepted] = (await once(server, 'connection')) as [Socket];
  onTestFinished(() => {
    client.destroy();
    accepted.destroy();
    server.close();
  });
  return { client, accepted: accepted.on('error', () => {}) };
}

const OPTIONS = { secureContext: createSecureContext() };

it('a client that leaves before its turn gets no handshake', async () => {
  const { client, accepted } = await pair();
  client.write(await helloOf({}));
  await once(accepted, 'readable');
  client.end();
  await once(client, 'finish');
  // So that its turn comes later than its end.
  noteArrival();
  expect(await performHandshake(accepted, OPTIONS)).toBeNull();
  expect(accepted.bytesWritten).toBe(0);
});

it('a client that sends much before its turn is answered with an alert', async () => {
  const { client, accepted } = await pair();
  client.write(Buffer.alloc(200_000, 'no TLS'));
  const errors: Error[] = [];
  expect(await performHandshake(accepted, OPTIONS, { onError: (error) => errors.push(error) })).toBeNull();
  expect(errors).toHaveLength(1);
});

it('a connection that has ended already gets no handshake', async () => {
  const { accepted } = await pair();
  accepted.destroy();
  await once(accepted, 'close');
  expect(await performHandshake(accepted, OPTIONS)).toBeNull();
});

const [A, C] = [true, false];
const numbers = (from: number, below: number) => Array.from({ length: below - from }, (_, at) => from + at);

it.each([
  ['clients are served in their order', 0, [C, C, C], [0, 1, 2]],
  ['once clients wait for longer, the newest is served first', 5_500, [C, C, C], [2, 1, 0]],
  [
    'of one network, one in sixteen is a client',
    0,
    [C, C, ...Array.from({ length: 17 }, () => A)],
    [...numbers(2, 17), 0, 17, 18, 1],
  ],
])('%s', async (_, lateMs, areAgents, order) => {
  const pairs = await Promise.all(areAgents.map(() => pair()));
  const hello = await helloOf({});
  for (const { client, accepted } of pairs) {
    client.write(hello);
    await once(accepted, 'readable');
  }
  const now = performance.now.bind(performance);
  let asked = 0;
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now() + lateMs * asked++);
  onTestFinished(() => clock.mockRestore());
  const begun: number[] = [];
  pairs.forEach(({ accepted }, at) => {
    const isAgent = areAgents[at] === true;
    void performHandshake(accepted, OPTIONS, { isAgent, onBegin: () => begun.push(at) });
  });
  await expect.poll(() => begun).toEqual(order);
});

it('a client cannot choose a costly group for the key exchange', async () => {
  const { cert, key } = await selfSigned();
  const secureContext = createSecureContext({ ...TLS_SERVER_OPTIONS, cert, key });
  for (const ecdhCurve of ['ffdhe2048', 'ffdhe8192', 'P-521']) {
    const { client, accepted } = await pair();
    const refused = once(connectTls({ socket: client, ecdhCurve, minVersion: 'TLSv1.3' }), 'error');
    expect(await performHandshake(accepted, { secureContext })).toBeNull();
    expect(await refused).toMatchObject([{ code: expect.stringContaining('ALERT_HANDSHAKE_FAILURE') }]);
  }
});
