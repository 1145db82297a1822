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

it('the version of a table changes with each of its changes, and with those of no other table', async () => {
  const store = open(join(temporaryFolder(), 'gateway.db'));
  const { database } = store;
  const versions = () => database.versions();
  const before = versions();
  expect(versions()).toEqual(before);
  const row = await addBot(store, 'one');
  const added = versions();
  expect(added).toEqual({ ...before, tables: { ...before.tables, bot_users: 1 } });
  await database.write(() => store.botUsers.update({ ...row, name: 'two' }));
  expect(versions()).toEqual({ ...added, tables: { ...added.tables, bot_users: 2 } });
});

it('the version of all tables changes with a deletion, which may take rows of others along', async () => {
  const store = open(join(temporaryFolder(), 'gateway.db'));
  const { id } = await addBot(store, 'one');
  const before = store.database.versions();
  await store.database.write(() => store.botUsers.delete(id));
  expect(store.database.versions().all).not.toBe(before.all);
});

it('the version of all tables changes with a change by another process, and with a restart', async () => {
  const file = join(temporaryFolder(), 'gateway.db');
  const store = open(file);
  const command = open(file);
  const before = store.database.versions();
  await addBot(command, 'one');
  const after = store.database.versions();
  expect(after.all).not.toBe(before.all);
  expect(store.database.versions()).toEqual(after);
  store.database.close();
  expect(open(file).database.versions().all).not.toBe(after.all);
});
