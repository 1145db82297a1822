import { expect, it, onTestFinished } from 'vitest';
import type { DeviceRow } from '../../../src/gateway/store/devices.ts';
import { openGatewayStore } from '../../../src/gateway/store/open-gateway-store.ts';
import { issueApiKey } from '../../../src/gateway/store/tokens.ts';
import { ManagementClient } from '../../../src/management/client.ts';
import { fetchTrusting } from '../../../src/management/fetch-trusting.ts';
import { addDevices, fillStore } from '../../support/dashboard.ts';
import { GatewayProcess } from '../../support/gateway-process.ts';
import { sharedFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

const DEVICES = 2_000;
const folder = sharedFolder();

it('a bulk action goes on after kill -9 of the gateway, twice, and is done once for each device', async () => {
  const open = () => openGatewayStore({ dataDir: `${folder}/data`, encryptionKey: null });
  const store = open();
  const sample = (await fillStore(store, 'text')).devices;
  await addDevices(store, sample, DEVICES, { site: 'north.example.com' });
  const { token } = await store.database.write(() => issueApiKey(store, { description: 'bulk' }));
  store.database.close();
  const gateway = await GatewayProcess.start(folder, { GATEWAY_DOMAIN: 'gateway.localhost' });
  onTestFinished(() => gateway.kill());
  const client = () =>
    new ManagementClient({
      ...{ baseUrl: `https://api.gateway.localhost:${gateway.httpsPort}`, apiKey: token },
      fetch: fetchTrusting({ ca: gateway.sessionCa }),
    });
  const { id } = await client().bulkActions.create({
    ...{ action: 'label', labels: { floor: '2' }, filter: { site: 'north.example.com' } },
  });
  const done = async () => (await client().bulkActions.get(id)).done;
  for (const share of [0.2, 0.5]) {
    await until(async () => (await done()) > share * DEVICES, 'a part is done');
    expect(await done()).toBeLessThan(DEVICES);
    await gateway.restart();
  }
  await until(async () => (await client().bulkActions.get(id)).state === 'finished', 'the rest is done', {
    withinMs: 120_000,
  });
  expect(await client().bulkActions.get(id)).toMatchObject({ done: DEVICES, failed: 0, left: 0 });
  await gateway.kill();
  const after = open();
  onTestFinished(() => after.database.close());
  expect(after.devices.where("labels LIKE '%floor%'", []) as DeviceRow[]).toHaveLength(DEVICES);
  const parts = after.auditLog.where('part_of = ?', [id]);
  expect(parts).toHaveLength(DEVICES);
  expect(new Set(parts.map(({ object_id }) => object_id)).size).toBe(DEVICES);
  expect(after.auditLog.where("type LIKE 'bulk_action%'", [])).toHaveLength(1);
}, 180_000);
