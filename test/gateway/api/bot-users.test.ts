import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { BASE_URL, type ManagementServer, startManagementServer } from '../../support/management-server.ts';

let server: ManagementServer;
beforeAll(async () => {
  server = await startManagementServer();
});
afterAll(() => server.close());

describe('/bot_users', () => {
  it('POST creates an active bot user without a name by default', async () => {
    const answer = await server.call('POST', '/bot_users');
    expect(answer.status).toBe(201);
    expect(answer.body).toEqual({
      id: expect.stringMatching(/^bot_[0-9A-Za-z]{27}$/),
      uri: `${BASE_URL}/bot_users/${answer.id}`,
      name: '',
      active: true,
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/),
    });
  });

  it('POST accepts a name that is already used', async () => {
    await server.call('POST', '/bot_users', { name: 'twin' });
    expect((await server.call('POST', '/bot_users', { name: 'twin' })).status).toBe(201);
  });

  it('PATCH changes only the members it sends', async () => {
    const { id, body } = await server.call('POST', '/bot_users', { name: 'before' });
    const renamed = await server.call('PATCH', `/bot_users/${id}`, { name: 'after' });
    expect(renamed.status).toBe(200);
    expect(renamed.body).toEqual({ ...body, name: 'after' });
    const deactivated = await server.call('PATCH', `/bot_users/${id}`, { active: false });
    expect(deactivated.body).toEqual({ ...body, name: 'after', active: false });
    const untouched = await server.call('PATCH', `/bot_users/${id}`, { id, name: null, active: null });
    expect(untouched.body).toEqual(deactivated.body);
    const reactivated = await server.call('PATCH', `/bot_users/${id}`, { active: true });
    expect(reactivated.body).toMatchObject({ active: true });
  });

  it('POST limits a name by bytes, not by characters', async () => {
    const fits = await server.call('POST', '/bot_users', { name: 'é'.repeat(127) });
    expect(fits.status).toBe(201);
    const tooLong = await server.call('POST', '/bot_users', { name: 'é'.repeat(128) });
    expect(tooLong.body).toMatchObject({ error_code: 'ERR_NGROK_4110', status_code: 400 });
  });

  it.each([
    [{ name: 7 }, 215],
    [{ id: 'bot_1' }, 214],
  ])('POST refuses %j with ERR_NGROK_%i', async (body, code) => {
    const answer = await server.call('POST', '/bot_users', body);
    expect([answer.status, answer.body.error_code]).toEqual([400, `ERR_NGROK_${code}`]);
  });
});

describe('/service_users', () => {
  it('answers bot users under another prefix and accepts both prefixes', async () => {
    const bot = await server.call('POST', '/bot_users', { name: 'same' });
    const serviceId = bot.id.replace('bot_', 'service_');
    for (const id of [bot.id, serviceId]) {
      expect((await server.call('GET', `/bot_users/${id}`)).body).toEqual(bot.body);
      expect((await server.call('GET', `/service_users/${id}`)).body).toEqual({
        ...bot.body,
        id: serviceId,
        uri: `${BASE_URL}/service_users/${serviceId}`,
      });
    }
    const list = await server.call('GET', '/service_users?limit=1');
    expect(list.body).toMatchObject({ service_users: [{ id: serviceId }], uri: `${BASE_URL}/service_users` });
    expect((await server.call('PATCH', `/service_users/${serviceId}`, { active: false })).body.active).toBe(false);
    expect((await server.call('DELETE', `/service_users/${serviceId}`)).status).toBe(204);
    expect((await server.call('GET', `/bot_users/${bot.id}`)).status).toBe(404);
  });
});
