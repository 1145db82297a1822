import { expect, it } from 'vitest';
import { setUpTunnels, tunnelRequest } from '../../support/tunnel-set-up.ts';

const SITE = { domain: 'site.example.com', deviceName: 'cabinet-7' };

it.each([
  ['a random name of the device', undefined, SITE, /^[a-z]{6}-cabinet-7\.site\.example\.com$/],
  ['a label of the device', 'camera', SITE, /^camera-cabinet-7\.site\.example\.com$/],
  ['a label that has the name already', 'camera-cabinet-7', SITE, /^camera-cabinet-7\.site\.example\.com$/],
  ['a full hostname', 'cam.example.com', SITE, /^cam\.example\.com$/],
  [
    'a label of an agent with a site of its own',
    'camera',
    { ...SITE, deviceName: null },
    /^camera\.site\.example\.com$/,
  ],
])('a new tunnel at a site gets %s', async (_what, domain, site, expected) => {
  const { tunnels: manager } = await setUpTunnels({ site });
  const { tunnel } = await manager.create(tunnelRequest({ domain }));
  expect(tunnel.domain).toMatch(expected);
});

it('a label that is too long with the name of the device is refused', async () => {
  const { tunnels: manager } = await setUpTunnels({ site: SITE });
  await expect(manager.create(tunnelRequest({ domain: 'x'.repeat(60) }))).rejects.toMatchObject({
    code: 'ERR_AGENT_INVALID_REQUEST',
    details: { domain: expect.stringContaining('63') },
  });
});
