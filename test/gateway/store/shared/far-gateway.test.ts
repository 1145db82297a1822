import { afterAll, beforeAll, beforeEach, expect, it, onTestFinished } from 'vitest';
import { openForChanges } from '../../../../src/gateway/store/open-gateway-store.ts';
import type { SharedWrites } from '../../../../src/gateway/store/shared/shared-writes.ts';
import type { Store } from '../../../../src/gateway/store/store.ts';
import { closeOnce } from '../../../support/close-once.ts';
import { FlakyProxy } from '../../../support/flaky-proxy.ts';
import { NO_POSTGRES, PostgresServer } from '../../../support/postgres-server.ts';
import { unless } from '../../../support/requirements.ts';
import { silentLog } from '../../../support/silent-log.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';
import { until } from '../../../support/until.ts';
import { CommitCut } from '../../cluster/histories/commit-cut.ts';

const KEY = Buffer.alloc(32, 7).toString('base64');
/** One way. */
const FAR_MS = 40;
let server: PostgresServer;
let link: FlakyProxy;
let near: SharedStore;
let far: SharedStore;

interface SharedStore {
  store: Store;
  shared: SharedWrites;
}

beforeAll(async () => {
  if (NO_POSTGRES === null) server = await PostgresServer.start();
});
afterAll(() => server?.end());
beforeEach(async () => {
  if (NO_POSTGRES !== null) return;
  await server.query('DROP SCHEMA IF EXISTS device_agent CASCADE');
  link = await FlakyProxy.start(server.address);
  onTestFinished(() => link.close());
  [near, far] = [await openAt(server.url()), await openAt(server.url(link.address))];
  link.delay(FAR_MS, FAR_MS);
});

async function openAt(databaseUrl: string): Promise<SharedStore> {
  const location = { dataDir: temporaryFolder(), encryptionKey: KEY, databaseUrl };
  const { store, shared, close } = await openForChanges(location, { older: 'upgrade', log: silentLog });
  onTestFinished(closeOnce(close));
  if (shared === null) throw new Error('it has no shared database');
  return { store, shared };
}

function add({ store }: SharedStore, name: string): void {
  store.botUsers.insert({ id: store.ids.next('bot'), created_at: store.now(), name, active: true });
}

const namesOf = ({ store }: SharedStore) => store.botUsers.where('id > ?', ['']).map(({ name }) => name);

/** Adds something if nobody else has yet. @returns what was there each time that this was tried */
function addAlone(where: SharedStore, id: string, name: string): { seen: string[][]; done: Promise<void> } {
  const { database, botUsers, now } = where.store;
  const seen: string[][] = [];
  const done = database.writeApart(() => {
    seen.push(namesOf(where).filter((each) => each === name));
    if (seen.at(-1)?.length === 0) botUsers.insert({ id, created_at: now(), name, active: true });
  }, [{ table: 'bot_users', column: 'name', value: name }]);
  return { seen, done };
}

/** Others commit all the time. @returns ends that */
function beginCommits(): () => Promise<void> {
  let goesOn = true;
  const all = (async () => {
    while (goesOn) await near.store.database.write(() => add(near, 'near'));
  })();
  return async () => {
    goesOn = false;
    await all;
  };
}

it('a far gateway makes any change while near ones commit all the time', unless(NO_POSTGRES), async () => {
  const end = beginCommits();
  const { database } = far.store;
  await Promise.all(['one', 'two'].map((name) => database.write(() => add(far, name))));
  await database.write(() => add(far, 'three'));
  await end();
  await near.shared.refresh();
  expect(namesOf(near).filter((name) => name !== 'near')).toEqual(['one', 'two', 'three']);
});

it('a far gateway starts while near ones commit all the time, with all from before', unless(NO_POSTGRES), async () => {
  await near.store.database.write(() => add(near, 'before'));
  const end = beginCommits();
  const late = await openAt(server.url(link.address));
  await end();
  expect(namesOf(late)).toContain('before');
  await Promise.all([near, late].map(({ shared }) => shared.refresh()));
  expect(near.shared.digest()).toBe(late.shared.digest());
});

it(
  'a change apart is made in one attempt, and the copy has what others have committed',
  unless(NO_POSTGRES),
  async () => {
    await near.store.database.write(() => add(near, 'before'));
    const { seen, done } = addAlone(far, 'bot_far', 'far');
    await near.store.database.write(() => add(near, 'meanwhile'));
    await done;
    expect(seen).toEqual([[]]);
    expect(namesOf(far).sort()).toEqual(['before', 'far', 'meanwhile']);
    await near.shared.refresh();
    expect(near.shared.digest()).toBe(far.shared.digest());
  },
);

it.each([
  ['what it has read', async () => near.store.database.write(() => add(near, 'name'))],
  ['nothing else, which is apart, too', () => addAlone(near, 'bot_near', 'name').done],
])('a change apart is tried again when somebody has changed %s', unless(NO_POSTGRES), async (_, change) => {
  link.hold();
  const { seen, done } = addAlone(far, 'bot_far', 'name');
  await until(() => seen.length === 1, 'its first attempt');
  await change();
  link.release();
  await done;
  expect(seen).toEqual([[], ['name']]);
  expect(namesOf(far)).toEqual(['name']);
});

it('a change apart is tried again when somebody has changed its row', unless(NO_POSTGRES), async () => {
  const { database, botUsers } = near.store;
  await database.write(() => add(near, 'old'));
  await far.shared.refresh();
  const [row] = botUsers.where('name = ?', ['old']);
  if (!row) throw new Error('it is not there');
  const seen: (string | undefined)[] = [];
  link.hold();
  const done = far.store.database.writeApart(() => {
    const present = far.store.botUsers.get(row.id);
    seen.push(present?.name);
    if (present) far.store.botUsers.update({ ...present, active: false });
  }, []);
  await until(() => seen.length === 1, 'its first attempt');
  await database.write(() => botUsers.delete(row.id));
  link.release();
  await done;
  expect([seen, namesOf(far)]).toEqual([['old', undefined], []]);
});

it('a change apart is made once wherever its connection breaks', unless(NO_POSTGRES), async () => {
  link.delay(0);
  const before = await commits();
  const cut = new CommitCut();
  link.watch = () => cut.watch();
  link.cut();
  for (let position = 0; position < CommitCut.POSITIONS; position += 1) {
    cut.position = position;
    await addAlone(far, `bot_${position}`, `${position}`).done;
    await near.store.database.write(() => add(near, 'near'));
  }
  await far.shared.refresh();
  expect(namesOf(far).filter((name) => name !== 'near')).toHaveLength(CommitCut.POSITIONS);
  expect((await commits()) - before).toBe(2 * CommitCut.POSITIONS);
});

async function commits(): Promise<number> {
  const [row] = await server.query<{ count: number }>('SELECT count(*)::int FROM device_agent.commits');
  return row?.count ?? 0;
}
