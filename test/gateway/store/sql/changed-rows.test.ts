import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { openStore, type Store } from '../../../../src/gateway/store/store.ts';
import { SecretsBox } from '../../../../src/lib/secrets-box.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';

function open(file: string): Store {
  const store = openStore(file, new SecretsBox(randomBytes(32)));
  onTestFinished(() => store.database.close());
  return store;
}

const addBot = ({ database, botUsers, ids, now }: Store, name: string) =>
  database.write(() => {
    const row = { id: ids.next('bot'), created_at: now(), name, active: true };
    botUsers.insert(row);
    return row;
  });

it('changed rows are told once, by table', async () => {
  const store = open(join(temporaryFolder(), 'gateway.db'));
  const { database } = store;
  database.takeChanges();
  const row = await addBot(store, 'one');
  expect(database.takeChanges()).toEqual({ bot_users: [row.id] });
  expect(database.takeChanges()).toEqual({});
  await database.write(() => {
    store.botUsers.update({ ...row, name: 'two' });
    store.botUsers.update({ ...row, name: 'three' });
    store.siteNames.freeAllOf('dev_1');
  });
  expect(database.takeChanges()).toEqual({ bot_users: [row.id], devices: ['dev_1'] });
});

it('a deletion, which may take rows of other tables along, counts as a change of any row', async () => {
  const store = open(join(temporaryFolder(), 'gateway.db'));
  const { id } = await addBot(store, 'one');
  store.database.takeChanges();
  await store.database.write(() => store.botUsers.delete(id));
  expect(store.database.takeChanges()).toBeNull();
  expect(store.database.takeChanges()).toEqual({});
});

it('a change by another process counts as a change of any row', async () => {
  const file = join(temporaryFolder(), 'gateway.db');
  const store = open(file);
  store.database.takeChanges();
  await addBot(open(file), 'one');
  expect(store.database.takeChanges()).toBeNull();
  expect(store.database.takeChanges()).toEqual({});
});

it('changes that nobody asks for take no more memory than a hundred', async () => {
  const store = open(join(temporaryFolder(), 'gateway.db'));
  store.database.takeChanges();
  await Promise.all(Array.from({ length: 101 }, (_, n) => addBot(store, `${n}`)));
  expect(store.database.takeChanges()).toBeNull();
});
