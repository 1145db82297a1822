import { afterAll, beforeAll, expect, it } from 'vitest';
import { BASE_URL, type ManagementServer, startManagementServer } from '../../support/management-server.ts';

let server: ManagementServer;
beforeAll(async () => {
  server = await startManagementServer();
});
afterAll(() => server.close());

const refusal = (code: number, status = 400) => ({ status, body: { error_code: `ERR_NGROK_${code}` } });
const VALUE = 'correct horse battery staple';

let names = 0;
const freshName = () => `name-${names++}`;
const createVault = () => server.call('POST', '/vaults', { name: freshName() });

it('no answer, log line or row contains the value of a secret', async () => {
  const vault = await createVault();
  const { name } = vault.body;
  const sent = { name: 'db/password', value: VALUE, description: 'd', metadata: 'm' };
  const { id, body, status } = await server.call('POST', '/vault_secrets', { ...sent, vault_id: vault.id });
  expect(status).toBe(201);
  const key = { id: expect.stringMatching(/^ak_/), uri: expect.stringContaining('/api_keys/ak_') };
  expect(body).toEqual({
    ...{ id, uri: `${BASE_URL}/vault_secrets/${id}`, created_at: expect.any(String), updated_at: expect.any(String) },
    ...{ name: 'db/password', description: 'd', metadata: 'm', vault_name: name },
    ...{ vault: { id: vault.id, uri: `${BASE_URL}/vaults/${vault.id}` }, created_by: key, last_updated_by: key },
  });
  const answers = [
    await server.call('GET', `/vault_secrets/${id}`),
    await server.call('GET', '/vault_secrets'),
    await server.call('GET', `/vaults/${vault.id}/secrets`),
    await server.call('PATCH', `/vault_secrets/${id}`, { value: `${VALUE}!` }),
    await server.call('POST', '/vault_secrets', { ...sent, vault_id: vault.id }),
    await server.call('PATCH', `/vault_secrets/${id}`, { value: VALUE, unknown: 1 }),
  ];
  expect(JSON.stringify(answers) + server.logged()).not.toContain(VALUE);
  expect(server.store.vaultSecrets.get(id)?.value.includes(VALUE)).toBe(false);
  expect(server.store.vaultSecrets.read(vault.id, 'db/password')).toBe(`${VALUE}!`);
});

it('a vault lists its own secrets page by page, and is deleted when it is empty', async () => {
  const [vault, other] = [await createVault(), await createVault()];
  const create = async (vault_id: string, name: string) =>
    (await server.call('POST', '/vault_secrets', { name, value: 'v', vault_id })).id;
  const ids = [await create(vault.id, 'a'), await create(other.id, 'b'), await create(vault.id, 'c')];
  const path = `/vaults/${vault.id}/secrets`;
  const first = await server.call('GET', `${path}?limit=1`);
  expect(first.body).toMatchObject({ secrets: [{ id: ids[2] }], uri: BASE_URL + path });
  const next = String(first.body.next_page_uri).replace(BASE_URL, '');
  expect((await server.call('GET', next)).body).toMatchObject({ secrets: [{ id: ids[0] }], next_page_uri: null });
  const remove = () => server.call('DELETE', `/vaults/${vault.id}`);
  expect(await remove()).toMatchObject(refusal(23_003));
  for (const id of [ids[0], ids[2]]) await server.call('DELETE', `/vault_secrets/${id}`);
  expect((await remove()).status).toBe(204);
});

it('a secret can name its vault by name', async () => {
  const { body } = await createVault();
  const sent = { name: 's', value: 'v', vault_name: body.name };
  expect((await server.call('POST', '/vault_secrets', sent)).body).toMatchObject({ vault: { id: body.id } });
});

it('a vault loses its owner with the bot user', async () => {
  const bot = await server.call('POST', '/service_users');
  const vault = await server.call('POST', '/vaults', { name: freshName(), owner_id: bot.id });
  expect(vault.body.owner_id).toBe(bot.id.replace('service_', 'bot_'));
  await server.call('DELETE', `/service_users/${bot.id}`);
  expect((await server.call('GET', `/vaults/${vault.id}`)).body.owner_id).toBeNull();
});

it.each([
  [{ name: '' }, 23_001],
  [{ name: 'a b' }, 23_000],
  [{ name: 'x'.repeat(256) }, 23_002],
  [{ name: 'taken' }, 23_004],
  [{ name: 'v', owner_id: 'bot_1' }, 634],
])('POST /vaults refuses %j', async (body, code) => {
  await server.call('POST', '/vaults', { name: 'taken' });
  expect(await server.call('POST', '/vaults', body)).toMatchObject(refusal(code));
});

it.each([
  [{ name: '' }, 24_001],
  [{ name: 'a\nb' }, 24_000],
  [{ name: 'x'.repeat(256) }, 24_002],
  [{ value: '' }, 24_003],
  [{ value: 'x'.repeat(65_537) }, 24_004],
  [{ name: 'taken' }, 24_005],
  [{ vault_id: 'vault_1' }, 24_006],
  [{ vault_id: '' }, 24_008],
  [{ vault_id: '', vault_name: 'nowhere' }, 24_009],
])('POST /vault_secrets refuses %j', async (body, code) => {
  const { id } = await createVault();
  const valid = { name: 'taken', value: 'v', vault_id: id };
  await server.call('POST', '/vault_secrets', valid);
  expect(await server.call('POST', '/vault_secrets', { ...valid, name: 's', ...body })).toMatchObject(refusal(code));
});

it('names stay unique when they change', async () => {
  const [one, other] = [await createVault(), await createVault()];
  const renamed = await server.call('PATCH', `/vaults/${one.id}`, { name: other.body.name });
  expect(renamed).toMatchObject(refusal(23_004));
  const create = async (name: string) =>
    (await server.call('POST', '/vault_secrets', { name, value: 'v', vault_id: one.id })).id;
  const [a] = [await create('a'), await create('b')];
  expect(await server.call('PATCH', `/vault_secrets/${a}`, { name: 'b' })).toMatchObject(refusal(24_005));
});
