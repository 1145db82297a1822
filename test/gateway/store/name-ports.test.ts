import { afterEach, beforeEach, expect, it } from 'vitest';
import { NamePorts } from '../../../src/gateway/store/name-ports.ts';
import { openGatewayStore } from '../../../src/gateway/store/open-gateway-store.ts';
import type { Store } from '../../../src/gateway/store/store.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const RANGE = { first: 21_000, last: 21_999 };

let store: Store;
/** Owners by names. */
let owners: Map<string, string>;
let today: string;
let ports: NamePorts;
beforeEach(() => {
  store = openGatewayStore({ dataDir: temporaryFolder(), encryptionKey: null });
  owners = new Map();
  today = '2026-01-01';
  ports = open();
});
afterEach(() => {
  store.database.close();
});

/** As after a restart, when it knows only what the database has. */
const open = () =>
  new NamePorts(
    store.database,
    () => `${today}T00:00:00Z`,
    () => owners,
  );

/** Assigns while the disk is full. */
async function assignUnsaved(name: string, port: number): Promise<void> {
  const { write } = store.database;
  store.database.write = () => Promise.reject(new Error('disk full'));
  await expect(ports.assign(name, port)).rejects.toThrow('disk full');
  store.database.write = write;
}

it('a port that could not be written is in use, and written when it is used again', async () => {
  owners.set('cam', 'device');
  await assignUnsaved('cam', 21_001);
  expect([ports.portOf('cam'), ports.nameAt(21_001)]).toEqual([21_001, 'cam']);
  expect([ports.used(), ports.reserved(RANGE), open().used()]).toEqual([[21_001], [21_001], []]);
  await ports.remember(21_001);
  expect(open().nameAt(21_001)).toBe('cam');
});

it('a name whose port could not be written gets another one, and its port another name', async () => {
  await ports.assign('cam', 21_000);
  await assignUnsaved('cam', 21_001);
  expect([ports.portOf('cam'), ports.nameAt(21_000)]).toEqual([21_001, null]);
  await ports.assign('cam', 21_002);
  expect([ports.portOf('cam'), ports.nameAt(21_001)]).toEqual([21_002, null]);
  await assignUnsaved('cam', 21_001);
  await ports.assign('door', 21_001);
  expect([ports.portOf('door'), ports.nameAt(21_001), ports.portOf('cam')]).toEqual([21_001, 'door', 21_002]);
  expect(ports.used()).toEqual(open().used());
});

it('only the last used ports of each owner are kept, and for a season', async () => {
  for (let at = 0; at < 25; at += 1) {
    today = `2026-01-${at + 1}`.replace(/-(\d)$/, '-0$1');
    owners.set(`n${at}`, 'one that binds name after name');
    await ports.assign(`n${at}`, 21_000 + at);
  }
  owners.set('cam', 'another');
  await ports.assign('cam', 21_100);
  await ports.assign('of-nobody', 21_101);
  const kept = ports.keptNames(RANGE);
  expect(kept.size).toBe(21);
  expect(['cam', 'n24', 'n5', 'n4', 'of-nobody'].map((name) => kept.has(name))).toEqual([
    true,
    true,
    true,
    false,
    false,
  ]);
  today = '2026-06-01';
  expect(ports.reserved(RANGE)).toEqual([]);
});

it('ports are left for those that have none: many owners keep fewer, but each the one that it has used last', async () => {
  const small = { first: 21_000, last: 21_039 };
  const kept = (owner: string) => [...ports.keptNames(small)].filter((name) => name.startsWith(owner)).sort();
  const assignAll = async (owner: string, from: number, count: number) => {
    for (let at = 0; at < count; at += 1) {
      owners.set(`${owner}${at}`, owner);
      await ports.assign(`${owner}${at}`, from + at);
    }
  };
  await assignAll('one', 21_000, 20);
  expect(kept('one')).toHaveLength(20);
  // Two that take all of the range do not keep it.
  await assignAll('two', 21_020, 20);
  expect([kept('one').length, kept('two').length]).toEqual([15, 15]);
  expect(kept('two')).toContain('two19');
  expect(kept('two')).not.toContain('two0');
  // An owner with few keeps all of them.
  await ports.assign('cam', 21_000);
  owners.set('cam', 'third');
  expect([kept('one').length, kept('two').length, kept('cam')]).toEqual([14, 14, ['cam']]);
  for (let at = 0; at < 40; at += 1) {
    owners.set(`n${at}`, `owner ${at}`);
    await ports.assign(`n${at}`, 21_000 + at);
  }
  expect(kept('n')).toHaveLength(40);
});
