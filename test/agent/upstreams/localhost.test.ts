import { isIPv6 } from 'node:net';
import { expect, it } from 'vitest';
import { LocalhostResolver } from '../../../src/agent/upstreams/localhost.ts';

const addresses = (...list: string[]) => list.map((address) => ({ address, family: isIPv6(address) ? 6 : 4 }));
const [V4, V6] = ['127.0.0.1', '::1'];

it.each([
  ['both', [V6, V4], true, { found: [V6, V4], isComplete: true }],
  ['127.0.0.1 only', [V4], true, { found: [V4, V6], isComplete: false }],
  ['::1 only', [V6], true, { found: [V6, V4], isComplete: false }],
  ['127.0.0.1 only, on a machine without IPv6', [V4], false, { found: [V4], isComplete: true }],
  ['nothing, on a machine without IPv6', [], false, { found: [V4], isComplete: false }],
  ['another machine', ['10.0.0.5', V4, V6], true, { found: [V4, V6], isComplete: false }],
  ['another address of loopback', ['127.0.1.1'], true, { found: ['127.0.1.1', V4, V6], isComplete: false }],
])(
  'localhost is all of loopback where the system resolves it to %s',
  async (_, known, hasIpv6, { found, isComplete }) => {
    const resolver = new LocalhostResolver(
      async () => addresses(...known),
      () => hasIpv6,
    );
    expect(await resolver.resolve()).toEqual({ addresses: addresses(...found), isComplete });
  },
);

it('localhost is all of loopback where the system does not resolve it, or too late', async () => {
  const all = { addresses: addresses(V4, V6), isComplete: false };
  const unknown = async () => Promise.reject(new Error('getaddrinfo ENOTFOUND localhost'));
  for (const system of [unknown, () => new Promise<never>(() => {})])
    expect(await new LocalhostResolver(system, () => true).resolve()).toEqual(all);
});

it('the system is asked once for many connections', async () => {
  let asked = 0;
  const resolver = new LocalhostResolver(async () => {
    asked += 1;
    return addresses(V4);
  });
  await Promise.all(Array.from({ length: 20 }, () => resolver.resolve()));
  expect(asked).toBe(1);
});
