import { Ngrok } from '@ngrok/ngrok-api';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { BASE_URL, type ManagementServer, startManagementServer } from '../../support/management-server.ts';

let server: ManagementServer;
let client: Ngrok;
beforeAll(async () => {
  server = await startManagementServer();
  client = new Ngrok({ baseUrl: server.url, apiToken: server.apiKey });
});
afterAll(() => server.close());

/** This version of the client fails on the empty body of a 204, after the request has succeeded. */
async function deleted(call: Promise<void>): Promise<void> {
  await expect(call).rejects.toThrow(/JSON/);
}
async function expectGone(call: Promise<unknown>): Promise<void> {
  await expect(call).rejects.toMatchObject({ statusCode: 404, errorCode: expect.stringMatching(/^ERR_NGROK_\d+$/) });
}

describe('ngrok’s TypeScript client, unchanged', () => {
  it('creates, reads, updates and deletes bot users', async () => {
    const bot = await client.botUsers.create({ name: 'site A' });
    expect(bot).toMatchObject({ name: 'site A', active: true, uri: `${BASE_URL}/bot_users/${bot.id}` });
    expect(await client.botUsers.get(bot.id)).toEqual(bot);
    expect(await client.botUsers.update({ id: bot.id, active: false })).toEqual({ ...bot, active: false });
    await deleted(client.botUsers.delete(bot.id));
    await expectGone(client.botUsers.get(bot.id));
  });

  it('creates, reads, updates, detaches and deletes reserved domains', async () => {
    const domain = await client.reservedDomains.create({
      domain: '*.official.example.com',
      region: 'us',
      certificateManagementPolicy: { authority: 'letsencrypt', privateKeyType: 'rsa' },
    });
    expect(domain).toMatchObject({
      domain: '*.official.example.com',
      cnameTarget: expect.any(String),
      acmeChallengeCnameTarget: expect.any(String),
      certificateManagementStatus: { provisioningJob: { errorCode: null, retriesAt: null } },
    });
    expect(await client.reservedDomains.get(domain.id)).toEqual(domain);
    const changed = await client.reservedDomains.update({ id: domain.id, description: 'site A' });
    expect(changed).toEqual({ ...domain, description: 'site A' });
    await deleted(client.reservedDomains.deleteCertificateManagementPolicy(domain.id));
    await deleted(client.reservedDomains.deleteCertificate(domain.id));
    expect(await client.reservedDomains.get(domain.id)).toMatchObject({ certificateManagementPolicy: null });
    expect(await client.reservedDomains.list()).toHaveLength(1);
    await deleted(client.reservedDomains.delete(domain.id));
    await expectGone(client.reservedDomains.get(domain.id));
  });

  it('creates, reads, updates and deletes TLS edges and their modules', async () => {
    const backend = await client.backends.httpResponseBackends.create({
      body: 'hello',
      headers: new Map(),
      statusCode: 418,
    });
    const edge = await client.edges.edgesTls.create({
      hostports: ['official.example.com:443'],
      backend: { enabled: true, backendId: backend.id },
    });
    expect(edge).toMatchObject({ hostports: ['official.example.com:443'], backend: { backend: { id: backend.id } } });
    expect(await client.edges.edgesTls.get(edge.id)).toEqual(edge);
    const changed = await client.edges.edgesTls.update({ id: edge.id, metadata: '{}' });
    expect(changed).toEqual({ ...edge, metadata: '{}' });
    const modules = client.edgeModules;
    const module = { enabled: false, backendId: backend.id };
    const replaced = await modules.tlsEdgeBackendModule.replace({ id: edge.id, module });
    expect(replaced).toEqual({ enabled: false, backend: { id: backend.id, uri: backend.uri } });
    expect(await modules.tlsEdgeBackendModule.get(edge.id)).toEqual(replaced);
    await deleted(modules.tlsEdgeBackendModule.delete(edge.id));
    await expectGone(modules.tlsEdgeBackendModule.get(edge.id));
    expect(await client.edges.edgesTls.list()).toHaveLength(1);
    await deleted(client.edges.edgesTls.delete(edge.id));
    await expectGone(client.edges.edgesTls.get(edge.id));
  });

  it('reads all pages of a list, each item once', async () => {
    const names = Array.from({ length: 7 }, (_, i) => `bot ${i}`);
    for (const name of names) await client.botUsers.create({ name });
    const found = await client.botUsers.list(undefined, '3');
    expect(found.map(({ name }) => name)).toEqual(names.toReversed());
  });

  it('reads error codes', async () => {
    await expect(client.reservedDomains.create({ domain: 'nodot', region: '' })).rejects.toMatchObject({
      statusCode: 400,
      errorCode: 'ERR_NGROK_448',
      msg: expect.any(String),
      details: expect.any(Map),
    });
    const unauthorized = new Ngrok({ baseUrl: server.url, apiToken: 'nobody_knowsthiskey' });
    await expect(unauthorized.botUsers.list()).rejects.toMatchObject({ statusCode: 403, errorCode: 'ERR_NGROK_203' });
  });
});
