import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { applyDeclaredTunnels } from '../../../src/agent/tunnels/declared-tunnels.ts';
import type { Tunnel } from '../../../src/agent/tunnels/tunnel.ts';
import { ApiError } from '../../../src/lib/errors.ts';
import { FakeConnector } from '../../support/fake-connector.ts';
import { silentLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { setUpTunnels, tunnelRequest } from '../../support/tunnel-set-up.ts';
import { until } from '../../support/until.ts';

const SITE = { domain: 'site.example.com', deviceName: 'cabinet-7' };
const PLAIN = 'camera.site.example.com';
const OWN = 'camera-cabinet-7.site.example.com';

/** Refuses a domain, as a gateway does where it belongs to another device, or as an older one always does. */
function refuse(connector: FakeConnector, domain: string | null): void {
  connector.beforeOpen = async (request) => {
    if (request.domain === domain) throw new ApiError(403, 'ERR_NGROK_316', `${domain} belongs to another device`);
  };
}

it.each([
  ['a random name of the device', undefined, SITE, /^[a-z]{6}-cabinet-7\.site\.example\.com$/],
  ['the label below the site', 'camera', SITE, /^camera\.site\.example\.com$/],
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

it('a tunnel whose label another device has gets the name of this device, says so, and keeps it', async () => {
  const { tunnels, connector, store } = await setUpTunnels({ site: SITE });
  refuse(connector, PLAIN);
  const notices: string[] = [];
  const { tunnel } = await tunnels.create(tunnelRequest({ domain: 'camera' }), (text) => notices.push(text));
  expect(notices).toEqual([`${PLAIN} belongs to another device; this tunnel is ${OWN}`]);
  expect(store.list()).toMatchObject([{ domain: OWN, url: `https://${OWN}:8443` }]);
  refuse(connector, null);
  connector.goOffline();
  connector.goOnline();
  await until(() => connector.bound.has(tunnel.url), 'the tunnel to be online again');
  // The label still means that tunnel.
  const again = tunnels.create(tunnelRequest({ domain: 'camera' }));
  await expect(again).rejects.toMatchObject({ code: 'ERR_AGENT_DOMAIN_IN_USE' });
});

it('a label leaves no domain behind that was not used', async () => {
  const { tunnels, connector } = await setUpTunnels({ site: SITE });
  const create = (domain: string) => tunnels.create(tunnelRequest({ domain }));
  await create('camera');
  await create(OWN);
  refuse(connector, 'door.site.example.com');
  await create('door');
  refuse(connector, null);
  await create('door.site.example.com');
  expect(tunnels.list()).toHaveLength(4);
});

it('a label that is too long for a name of the device is refused with the reason of the gateway', async () => {
  const { tunnels, connector } = await setUpTunnels({ site: SITE });
  const label = 'x'.repeat(60);
  refuse(connector, `${label}.site.example.com`);
  const created = tunnels.create(tunnelRequest({ domain: label }));
  await expect(created).rejects.toMatchObject({ code: 'ERR_NGROK_316', status: 403 });
});

it.each([
  [PLAIN, null],
  [OWN, PLAIN],
])('a tunnel declared with a label gets %s once and for all, and is not declared again', async (expected, refused) => {
  const folder = join(temporaryFolder(), 'tunnels.d');
  mkdirSync(folder);
  writeFileSync(join(folder, 'camera.yaml'), 'tunnels: [{ domain: camera, forwards_to: 8001 }]');
  const rules = { defaultPolicies: {}, reservedDomains: [], site: SITE };
  const declare = (store: Parameters<typeof applyDeclaredTunnels>[0]) =>
    applyDeclaredTunnels(store, { folder, rules, log: silentLog });
  const connector = new FakeConnector();
  refuse(connector, refused);
  const first = await setUpTunnels({ site: SITE, declare, connector });
  await until(() => first.store.list()[0]?.domain === expected, 'the domain to be decided');
  await first.tunnels.stop();
  const again = await setUpTunnels({ site: SITE, declare, folder: first.folder });
  await until(() => again.connector.bound.has(`https://${expected}:8443`), 'the tunnel to be online');
  expect(again.store.list()).toEqual<Tunnel[]>(first.store.list());
});
