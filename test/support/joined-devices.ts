import { randomBytes } from 'node:crypto';
import type { DeviceRow } from '../../src/gateway/store/devices.ts';
import type { Store } from '../../src/gateway/store/store.ts';

/** Adds a device that has joined, with an authtoken of its own; `last_seen_at` null: it was never online. */
export async function joinedDevice(store: Store, own: Partial<DeviceRow> = {}): Promise<DeviceRow> {
  const [first] = await joinedDevices(store, [own]);
  if (first === undefined) throw new Error('no device');
  return first;
}

/** The same for many, in one commit. */
export function joinedDevices(store: Store, all: readonly Partial<DeviceRow>[]): Promise<DeviceRow[]> {
  const { database, botUsers, credentials, devices, ids, now } = store;
  return database.write(() => {
    const common = { created_at: now(), description: null, metadata: null };
    const bot = { ...common, id: ids.next('bot'), name: 'devices', active: true };
    botUsers.insert(botUsers.newRow(bot));
    return all.map((own, at) => {
      const credential = credentials.newRow({
        ...{ ...common, id: ids.next('cr'), acl: [], owner_id: bot.id, secret_hash: randomBytes(32) },
      });
      credentials.insert(credential);
      const device = devices.newRow({
        ...{ ...common, id: ids.next('dev'), name: `cam-${at + 1}`, site: 'quarry.example.com', owner_id: bot.id },
        ...{ install_hash: randomBytes(32), credential_id: credential.id, generation: 1, issued_generation: 1 },
        ...{ status: 'enrolled', own_names_only: false, internal_names: false, kept_rules: [], labels: {} },
        ...{ online: false, last_seen_at: now(), last_ip: '203.0.113.7', history: [], ...own },
      });
      devices.insert(device);
      return device;
    });
  });
}
