import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AuthtokenAcl } from '../../../src/gateway/access/authtoken-acl.ts';
import { credentialOf } from '../../../src/gateway/access/authtoken-authentication.ts';
import { isPermitted } from '../../../src/management/resources/acl-rule.ts';
import { BASE_DOMAIN, type ManagementServer, startManagementServer } from '../../support/management-server.ts';

let server: ManagementServer;
let access: AuthtokenAcl;
beforeAll(async () => {
  server = await startManagementServer();
  const zones = { cnameZone: `cname.${BASE_DOMAIN}`, acmeZone: `acme.${BASE_DOMAIN}` };
  access = new AuthtokenAcl(server.store, { baseDomain: BASE_DOMAIN, ...zones });
  for (const domain of ['app.example.com', '*.site.example.com']) {
    await server.call('POST', '/reserved_domains', { domain });
  }
  await server.call('POST', '/edges/tls', { hostports: ['edge.site.example.com:443'] });
});
afterAll(() => server.close());

const authenticate = (authtoken: string) => credentialOf(authtoken, server.store);

async function credential(body: object = {}): Promise<{ id: string; token: string }> {
  const answer = await server.call('POST', '/credentials', body);
  return { id: answer.id, token: String(answer.body.token) };
}

describe('an authtoken', () => {
  it('is valid from its creation to its deletion', async () => {
    const { id, token } = await credential();
    expect(authenticate(token)).toMatchObject({ id, owner_id: null });
    expect(access.authorize(id, { kind: 'hostname', hostname: 'app.example.com' })).toBeNull();
    await server.call('DELETE', `/credentials/${id}`);
    expect(authenticate(token)).toMatchObject({ code: 107 });
    expect(access.authorize(id, { kind: 'hostname', hostname: 'app.example.com' })).toMatchObject({ code: 300 });
    expect(server.revoked.at(-1)).toEqual({ credentialIds: [id] });
  });

  it('is refused with a wrong secret, and never repeated', async () => {
    const { token } = await credential();
    const wrong = `${token.slice(0, -1)}${token.endsWith('1') ? '2' : '1'}`;
    const answer = authenticate(wrong);
    expect(answer).toMatchObject({ code: 107 });
    expect(JSON.stringify(answer)).not.toContain(token.slice(0, 8));
  });

  it.each([
    ['', 4018],
    ['nonsense', 105],
    ['a_b_c', 105],
    ['32ELEkz2jOTMtPWtYLYm5yxBjvW_1234567890123456789012', 107],
  ])('%j is refused', (token, code) => {
    expect(authenticate(token)).toMatchObject({ code });
  });

  it('is not an API key', () => {
    expect(authenticate(server.apiKey)).toMatchObject({ code: 107 });
  });

  it('is valid only while its owner exists and is active', async () => {
    const bot = await server.call('POST', '/bot_users');
    const { id, token } = await credential({ owner_id: bot.id.replace('bot_', 'service_') });
    expect(authenticate(token)).toMatchObject({ id, owner_id: bot.id });
    expect(access.authorize(id, { kind: 'hostname', hostname: 'app.example.com' })).toBeNull();
    await server.call('PATCH', `/bot_users/${bot.id}`, { active: false });
    expect(server.revoked.at(-1)).toEqual({ credentialIds: [id] });
    expect(authenticate(token)).toMatchObject({ code: 300 });
    expect(access.authorize(id, { kind: 'hostname', hostname: 'app.example.com' })).toMatchObject({ code: 300 });
    await server.call('PATCH', `/bot_users/${bot.id}`, { active: true });
    expect(authenticate(token)).toMatchObject({ id, owner_id: bot.id });
    await server.call('DELETE', `/bot_users/${bot.id}`);
    expect(server.revoked.at(-1)).toEqual({ credentialIds: [id] });
    expect(authenticate(token)).toMatchObject({ code: 107 });
    expect((await server.call('GET', `/credentials/${id}`)).status).toBe(404);
  });
});

describe('binding', () => {
  it.each([
    ['app.example.com', null],
    ['cam.site.example.com', null],
    ['a.b.site.example.com', null],
    ['*.site.example.com', null],
    [`anything.${BASE_DOMAIN}`, null],
    ['other.example.com', 319],
    [`evil${BASE_DOMAIN}`, 319],
    [`connect.${BASE_DOMAIN}`, 319],
    ['site.example.com', 319],
    [BASE_DOMAIN, 319],
    [`x.cname.${BASE_DOMAIN}`, 319],
    ['*.example.com', 318],
    [`*.${BASE_DOMAIN}`, 318],
    ['*.b.site.example.com', 321],
    ['edge.site.example.com', 334],
  ])('%s', async (hostname, code) => {
    const { id } = await credential();
    const answer = access.authorize(id, { kind: 'hostname', hostname });
    expect(answer?.code ?? null).toBe(code);
  });

  it('is allowed by the authtoken’s ACL rules', async () => {
    const { id } = await credential({ acl: ['bind:*.site.example.com', 'bind:1.tcp.example.com:20002', 'bind:app=*'] });
    const codeFor = (binding: Parameters<AuthtokenAcl['authorize']>[1]) => access.authorize(id, binding)?.code ?? null;
    expect(codeFor({ kind: 'hostname', hostname: 'cam.site.example.com' })).toBeNull();
    expect(codeFor({ kind: 'hostname', hostname: 'app.example.com' })).toBe(316);
    expect(codeFor({ kind: 'address', address: '1.tcp.example.com:20002' })).toBeNull();
    expect(codeFor({ kind: 'address', address: '1.tcp.example.com:20003' })).toBe(308);
    expect(codeFor({ kind: 'any-address' })).toBe(356);
    expect(codeFor({ kind: 'labels', labels: { app: 'web' } })).toBeNull();
    expect(codeFor({ kind: 'labels', labels: { app: 'web', site: 'a' } })).toBe(399);
    await server.call('PATCH', `/credentials/${id}`, { acl: [] });
    expect(codeFor({ kind: 'hostname', hostname: 'app.example.com' })).toBeNull();
  });
});

describe('ACL rules', () => {
  const label = fc.stringMatching(/^[a-z][a-z0-9]{0,8}$/);
  const name = fc.array(label, { minLength: 2, maxLength: 5 }).map((labels) => labels.join('.'));

  it('with a wildcard allow exactly the names below it, at any depth', () => {
    fc.assert(
      fc.property(name, name, (base, other) => {
        const acl = [`bind:*.${base}`];
        const permitted = (hostname: string) => isPermitted(acl, { kind: 'hostname', hostname });
        expect(permitted(`${other}.${base}`)).toBe(true);
        expect(permitted(`*.${base}`)).toBe(true);
        expect(permitted(base)).toBe(false);
        expect(permitted(`x${base}`)).toBe(false);
        expect(permitted(other)).toBe(other.endsWith(`.${base}`));
      }),
    );
  });

  it('only ever widen what is allowed', () => {
    const rule = fc.oneof(
      name.map((host) => `bind:${host}`),
      name.map((host) => `bind:*.${host}`),
      fc.constant('*'),
    );
    fc.assert(
      fc.property(fc.array(rule, { minLength: 1, maxLength: 5 }), rule, name, (acl, more, hostname) => {
        const binding = { kind: 'hostname' as const, hostname };
        if (isPermitted(acl, binding)) expect(isPermitted([...acl, more], binding)).toBe(true);
      }),
    );
  });
});
