import { createSocket } from 'node:dgram';
import { Resolver } from 'node:dns/promises';
import { once } from 'node:events';
import { expect, it, onTestFinished } from 'vitest';
import { findName } from '../../../src/lib/network/name-lookup.ts';

const TYPE_A = 1;

/** A name server; `answer` returns addresses, null for a name that does not exist, and nothing to stay silent. */
async function nameServer(answer: (type: number) => readonly string[] | null | undefined) {
  const socket = createSocket('udp4');
  onTestFinished(() => void socket.close());
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  let asked = 0;
  socket.on('message', (query, peer) => {
    asked += 1;
    const end = query.indexOf(0, 12) + 5;
    const addresses = answer(query.readUInt16BE(end - 4));
    if (addresses === undefined) return;
    const head = Buffer.from(query.subarray(0, end));
    head.writeUInt16BE(addresses === null ? 0x8183 : 0x8180, 2);
    head.writeUInt16BE(addresses?.length ?? 0, 6);
    head.writeUInt32BE(0, 8);
    const records = (addresses ?? []).map((address) =>
      Buffer.from([0xc0, 12, 0, TYPE_A, 0, 1, 0, 0, 0, 0, 0, 4, ...address.split('.').map(Number)]),
    );
    socket.send(Buffer.concat([head, ...records]), peer.port, peer.address);
  });
  const resolver = (timeout = 60_000) => {
    const made = new Resolver({ timeout, tries: 1 });
    made.setServers([`127.0.0.1:${socket.address().port}`]);
    return made;
  };
  return { resolver, asked: () => asked };
}

it('finds the first addresses of a name, however many there are', async () => {
  const { resolver } = await nameServer((type) =>
    type === TYPE_A ? Array.from({ length: 20 }, (_, at) => `192.0.2.${at}`) : [],
  );
  const found = await findName('cam.example.com', undefined, resolver());
  expect(found).toHaveLength(16);
  expect(found[0]).toEqual({ address: '192.0.2.0', family: 4 });
});

it('asks the system for a name that the DNS does not have, and for one without dots', async () => {
  const { resolver, asked } = await nameServer(() => null);
  const [found] = await findName('a.localhost', undefined, resolver()).catch(() => [{ family: 0 }]);
  // Not every system knows names below localhost.
  expect([0, 4, 6]).toContain(found?.family);
  expect(asked()).toBeGreaterThan(0);
  const before = asked();
  expect(await findName('localhost', undefined, resolver())).toContainEqual({ address: '127.0.0.1', family: 4 });
  expect(asked()).toBe(before);
});

it('takes an address as it is', async () => {
  expect(await findName('2001:db8::1')).toEqual([{ address: '2001:db8::1', family: 6 }]);
});

it('ends with its signal while name servers are silent, and holds up no other name', async () => {
  const { resolver } = await nameServer(() => undefined);
  const aborts = Array.from({ length: 40 }, () => new AbortController());
  const lookups = aborts.map(({ signal }) => findName('slow.example.com', signal, resolver()));
  const ended = Promise.allSettled(lookups);
  expect(await findName('localhost')).not.toEqual([]);
  for (const abort of aborts) abort.abort();
  expect((await ended).every(({ status }) => status === 'rejected')).toBe(true);
});

it('fails when name servers are silent, without asking the system', async () => {
  const { resolver } = await nameServer(() => undefined);
  await expect(findName('slow.example.com', undefined, resolver(100))).rejects.toMatchObject({ code: 'ETIMEOUT' });
});
