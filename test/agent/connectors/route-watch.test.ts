import { expect, it } from 'vitest';
import { findRoute } from '../../../src/agent/connectors/route-watch.ts';

it('the kernel names the address and interface that lead to a peer', async () => {
  const find = findRoute();
  const first = await find('127.0.0.1');
  expect(first).toMatchObject({ address: '127.0.0.1', device: expect.stringMatching(/^lo/) });
  expect(await find('127.0.0.1')).toBe(first);
});

it('without a route there is none', async () => {
  expect(await findRoute()('not an address')).toBeNull();
});
