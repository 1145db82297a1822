import { afterAll, beforeAll, expect, it } from 'vitest';
import { issueCredential } from '../../src/gateway/store/tokens.ts';
import { agentSession, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { GatewayClient } from '../support/gateway-client.ts';
import { ask } from '../support/http-request.ts';

let gateway: TestGateway;
let api: GatewayClient;
beforeAll(async () => {
  gateway = await startTestGateway();
  api = await GatewayClient.of(gateway);
});
afterAll(() => gateway.close());

let names = 0;
const freshName = () => `secret${names++}`;

const policyOf = (...rules: object[]) => JSON.stringify({ on_http_request: rules });
const answer = (body: string) => ({ actions: [{ type: 'custom-response', config: { status_code: 200, body } }] });
const get = (host: string, headers = {}) => ask(gateway.httpPort, host, { headers });

/** A vault with one secret. */
async function createSecret(value: string, owner_id?: string): Promise<{ read: string; id: string; vaultId: string }> {
  const name = freshName();
  const { body: vault } = await api.call('POST', '/vaults', { name, ...(owner_id && { owner_id }) });
  const { body } = await api.call('POST', '/vault_secrets', { vault_id: vault.id, name: 'key', value });
  return { read: `secrets.get('${name}', 'key')`, id: String(body.id), vaultId: String(vault.id) };
}

async function cloudEndpoint(policy: string): Promise<string> {
  const host = `${freshName()}.localhost`;
  await api.call('POST', '/endpoints', { url: `http://${host}`, traffic_policy: policy });
  return host;
}

/** An agent's endpoint with an answer of its policy; the authtoken belongs to a bot user. */
async function agentEndpoint(owner_id: string | null, policy: string): Promise<string> {
  const { token: authtoken } = await gateway.store.database.write(() =>
    issueCredential(gateway.store, { acl: [], owner_id }),
  );
  const session = await agentSession({ ...gateway, authtoken }).connect();
  const host = `${freshName()}.localhost`;
  await session.httpEndpoint().scheme('HTTP').domain(host).trafficPolicy(policy).listen(false);
  return host;
}

const newBot = async () => String((await api.call('POST', '/bot_users', {})).body.id);

const FAILED = { status: 500, headers: { 'ngrok-error-code': 'ERR_NGROK_3900' } };

it('a policy of a cloud endpoint reads secrets, and a change takes effect on the next request', async () => {
  const { read, id } = await createSecret('first');
  const host = await cloudEndpoint(policyOf(answer(`\${${read}}`)));
  expect((await get(host)).body).toBe('first');
  await api.call('PATCH', `/vault_secrets/${id}`, { value: 'second' });
  expect((await get(host)).body).toBe('second');
  await api.call('DELETE', `/vault_secrets/${id}`);
  expect(await get(host)).toMatchObject(FAILED);
});

it('a policy of an agent reads the secrets of its owner, and nobody else’s', async () => {
  const [owner, stranger] = [await newBot(), await newBot()];
  const [own, unowned] = [await createSecret('own', owner), await createSecret('unowned')];
  const reads = ({ read }: { read: string }) => policyOf(answer(`\${${read}}`));
  expect((await get(await agentEndpoint(owner, reads(own)))).body).toBe('own');
  for (const [reader, secret] of [
    [stranger, own],
    [null, own],
    [owner, unowned],
    [null, unowned],
  ] as const)
    expect(await get(await agentEndpoint(reader, reads(secret)))).toMatchObject(FAILED);
});

it('a rule that rejects clients without a secret is not skipped when the secret is gone', async () => {
  const { read, id } = await createSecret('let me in');
  const denies = { expressions: [`getReqHeader('x-key') != [${read}]`], actions: [{ type: 'deny' }] };
  const host = await cloudEndpoint(policyOf(denies, answer('inside')));
  expect((await get(host)).status).toBe(403);
  expect((await get(host, { 'x-key': 'let me in' })).body).toBe('inside');
  await api.call('DELETE', `/vault_secrets/${id}`);
  expect(await get(host)).toMatchObject(FAILED);
});

it('a name that a client sends can fail the request, and no more', async () => {
  const { read } = await createSecret('hidden');
  const named = read.replace("'key'", 'req.url.path');
  const host = await cloudEndpoint(policyOf({ expressions: [`${named} == 'x'`], actions: [{ type: 'deny' }] }));
  for (const path of ['/%00', `/${'x'.repeat(5000)}`, '/key'])
    expect(await ask(gateway.httpPort, host, { path })).toMatchObject(FAILED);
});
