import { describe, expect, it, onTestFinished } from 'vitest';
import { AuthtokenAcl } from '../../../src/gateway/access/authtoken-acl.ts';
import { AuthtokenAuthentication } from '../../../src/gateway/access/authtoken-authentication.ts';
import { MAX_GRANTED, SiteNameGrants } from '../../../src/gateway/devices/site-name-grants.ts';
import { gatewayDomains } from '../../../src/gateway/endpoints/domain-names.ts';
import { issueCredential } from '../../../src/gateway/store/tokens.ts';
import type { BucketRate } from '../../../src/lib/time/token-bucket.ts';
import type { EnrolmentKeyCreate } from '../../../src/management/resources/enrolment.ts';
import { enrolmentKey, installKey } from '../../support/enrolment.ts';
import { type Answer, BASE_DOMAIN, startManagementServer } from '../../support/management-server.ts';
import { silentLog } from '../../support/silent-log.ts';

const SITE = 'site.example.com';
const RANGE = { first: 21_000, last: 21_999 };

/** A gateway whose devices and other agents ask for names. */
async function setUp(kept?: BucketRate) {
  /** Names that are online, by the id of the authtoken. */
  const online = new Map<string, string>();
  const endpoints = () => [...online.keys()].map((host) => ({ host })) as never;
  const server = await startManagementServer({ live: { endpoints } });
  onTestFinished(() => server.close());
  const { store } = server;
  const acl = new AuthtokenAcl(store, gatewayDomains(BASE_DOMAIN));
  const names = new SiteNameGrants(
    { store, log: silentLog },
    {
      isOnlineElsewhere: (hostname, id) => online.has(hostname) && online.get(hostname) !== id,
      refuseName: (hostname) => acl.refuseName(hostname),
    },
    kept,
  );
  const access = new AuthtokenAuthentication({ store, catchUp: async () => {} }, acl, names, () => false);
  /** Why an authtoken cannot bind a name of the site; null when it can. */
  const bind = async (authtoken: string, label: string, isRefused = false): Promise<string | null> => {
    const credential = await access.authenticate(authtoken, '127.0.0.1');
    const binding = { kind: 'hostname', hostname: label.includes('.') ? label : `${label}.${SITE}` } as const;
    try {
      credential.authorizeWanted(binding);
      // The bind can still be refused for another reason, such as its policy.
      if (isRefused) return null;
      await credential.keep(binding);
      credential.authorize(binding);
      return null;
    } catch (error) {
      expect(error).toMatchObject({ code: 'ERR_NGROK_316' });
      return String(error);
    }
  };
  const ask = (body: object): Promise<Answer> =>
    server.call('POST', '/enrolments', body, { Authorization: '', 'Service-Version': '' });
  const join = async (name: string, key: Partial<EnrolmentKeyCreate> = {}) => {
    const { secret } = await enrolmentKey(server, key);
    const request = { install_key: installKey(), secret, name };
    const { body } = await ask(request);
    const again = async () => String((await ask(request)).body.authtoken);
    return { authtoken: String(body.authtoken), name: body.name, path: `/devices/${body.device_id}`, again };
  };
  const operator = async (...rules: string[]) =>
    (await store.database.write(() => issueCredential(store, { acl: rules }))).token;
  const namesOf = async ({ path }: { path: string }) => (await server.call('GET', path)).body.plain_names;
  return { ...server, online, bind, join, operator, namesOf };
}

it('the first device that asks for a name below its site keeps it while it is offline, renamed and rotated', async () => {
  const { bind, join, call, namesOf } = await setUp();
  const [one, two] = [await join('one'), await join('two')];
  expect(await bind(one.authtoken, 'camera')).toBe(null);
  expect(await bind(two.authtoken, 'camera')).toContain('belongs to another device');
  expect(await bind(one.authtoken, 'x.camera')).toContain('rules do not allow');
  expect(await bind(one.authtoken, 'camera.example.com')).toContain('rules do not allow');
  expect(await bind(one.authtoken, '*')).toContain('rules do not allow');
  await call('PATCH', one.path, { name: 'door' });
  expect(await bind(one.authtoken, 'camera')).toBe(null);
  await call('POST', `${one.path}/rotate`);
  const rotated = await one.again();
  expect(rotated).not.toBe(one.authtoken);
  expect([await bind(rotated, 'camera'), await bind(two.authtoken, 'camera')]).toEqual([null, expect.any(String)]);
  expect(await namesOf(one)).toEqual(['camera']);
});

it("keeps the ports of names that are a device's, by grant or by their ends, until it is revoked", async () => {
  const { bind, join, call, operator, store } = await setUp();
  const one = await join('door-one');
  await bind(one.authtoken, 'camera');
  await bind(await operator(), 'of-rules');
  const names = ['camera', 'agent-door-one', 'x-one', 'of-rules', 'door-one'].map((label) => `${label}.${SITE}`);
  for (const [at, name] of names.entries()) await store.namePorts.assign(name, 21_000 + at);
  expect([...store.namePorts.reserved(RANGE)].sort()).toEqual([21_000, 21_001]);
  await call('POST', `${one.path}/revoke`);
  expect(store.namePorts.reserved(RANGE)).toEqual([]);
});

it('names of revoked and deleted devices are free again', async () => {
  const { bind, join, call } = await setUp();
  const [one, two, three] = [await join('one'), await join('two'), await join('three')];
  await bind(one.authtoken, 'camera');
  await call('POST', `${one.path}/revoke`);
  expect(await bind(two.authtoken, 'camera')).toBe(null);
  await call('DELETE', two.path);
  expect(await bind(three.authtoken, 'camera')).toBe(null);
});

it('a name that the operator takes from a device is free for the others, and given back only by the operator', async () => {
  const { bind, join, call, namesOf, revoked } = await setUp();
  const [one, two] = [await join('one'), await join('two')];
  for (const label of ['camera', 'door']) await bind(one.authtoken, label);
  expect((await call('PATCH', one.path, { plain_names: ['door'] })).body).toMatchObject({ plain_names: ['door'] });
  expect(revoked).toEqual([{ narrowedId: expect.stringMatching(/^cr_/) }]);
  expect(await bind(one.authtoken, 'camera')).toContain('taken from this device by the operator');
  expect(await bind(two.authtoken, 'camera')).toBe(null);
  expect((await call('PATCH', one.path, { plain_names: ['camera', 'door'] })).status).toBe(400);
  await call('PATCH', two.path, { plain_names: [] });
  await call('PATCH', one.path, { plain_names: ['Camera', 'door'] });
  expect(await namesOf(one)).toEqual(['camera', 'door']);
  expect(await bind(one.authtoken, 'camera')).toBe(null);
});

it('a device cannot get names of other devices, reserved ones, or those that computers look up', async () => {
  const { bind, join, call } = await setUp();
  const { authtoken, path } = await join('one');
  await join('two');
  await call('POST', '/reserved_domains', { domain: `shop.${SITE}` });
  await join('three', { site: `*.inner.${SITE}` });
  for (const label of ['camera-two', 'two', 'agent-three', 'shop', 'inner', 'wpad']) {
    expect(await bind(authtoken, label), label).toMatch(/belongs to another device|is reserved/);
    expect((await call('PATCH', path, { plain_names: [label] })).status, label).toBe(400);
  }
  expect(await bind(authtoken, 'camera-one')).toBe(null);
  expect((await call('GET', path)).body).toMatchObject({ plain_names: [] });
});

it('a device never gets a name that rules of an authtoken allowed before, also while nobody uses it', async () => {
  const { bind, join, operator, online, call } = await setUp();
  online.set(`login.${SITE}`, 'cr_operator');
  const one = await join('one');
  online.clear();
  const all = await operator(`bind:*.${SITE}`);
  expect(await bind(all, 'shop')).toBe(null);
  online.set(`live.${SITE}`, 'cr_another');
  for (const label of ['login', 'shop', 'live']) {
    expect(await bind(one.authtoken, label), label).toContain('belongs to another authtoken');
  }
  // A wildcard that serves every name.
  expect(await bind(one.authtoken, 'camera')).toBe(null);
  expect(await bind(await operator(), `*.${SITE}`)).toBe(null);
  expect(await bind(one.authtoken, 'door')).toContain('belongs to another authtoken');
  expect((await call('PATCH', one.path, { plain_names: ['shop'] })).status).toBe(200);
  expect(await bind(one.authtoken, 'shop')).toBe(null);
});

it('rules come before a name that a device got, unless it is online there', async () => {
  const { bind, join, operator, online, store } = await setUp();
  const one = await join('one');
  const shop = await operator(`bind:shop.${SITE}`);
  await bind(one.authtoken, 'shop');
  online.set(`shop.${SITE}`, String(store.devices.named('one')[0]?.credential_id));
  await bind(shop, 'shop');
  expect(await bind(one.authtoken, 'shop')).toBe(null);
  online.clear();
  expect(await bind(shop, 'shop')).toBe(null);
  expect(await bind(one.authtoken, 'shop')).toContain('belongs to another authtoken');
});

it('a name that ends in -<name> keeps other devices from that name', async () => {
  const { bind, join, call } = await setUp();
  const one = await join('one');
  await bind(one.authtoken, 'my-camera');
  const two = await join('camera');
  expect(two.name).toBe('camera-2');
  expect((await call('PATCH', two.path, { name: 'camera' })).body.error_code).toBe('ERR_GATEWAY_DEVICE_STATE');
  expect((await call('PATCH', one.path, { name: 'camera' })).status).toBe(200);
});

describe('a name that ends in the name of a device', () => {
  it('is not the device’s when it is reserved, looked up by computers, or was bound by another authtoken', async () => {
    const { bind, join, call, operator } = await setUp();
    const devices = {
      portal: await join('portal'),
      sts: await join('sts'),
      desk: await join('desk'),
      in: await join('in'),
    };
    const { portal, sts, desk } = devices;
    await call('POST', '/reserved_domains', { domain: `shop-portal.${SITE}` });
    await call('POST', '/reserved_domains', { domain: `*.store-portal.${SITE}` });
    await join('x', { site: `*.sign-in.${SITE}` });
    expect(sts.name).toBe('sts-2');
    expect(await bind(await operator(`bind:*.${SITE}`), 'help-desk')).toBe(null);
    expect(await bind(portal.authtoken, 'shop-portal')).toContain('is reserved');
    expect(await bind(portal.authtoken, 'store-portal')).toContain('is reserved');
    expect(await bind(devices.in.authtoken, 'sign-in')).toContain('is reserved');
    expect(await bind(desk.authtoken, 'help-desk')).toContain('belongs to another authtoken');
    for (const label of ['camera-desk', 'agent-desk', 'agent-x-desk'])
      expect(await bind(desk.authtoken, label)).toBe(null);
  });

  it('keeps a device from its name, when it joins and when it is renamed', async () => {
    const { bind, join, call, operator } = await setUp();
    const one = await join('one');
    await bind(await operator(`bind:*.${SITE}`), 'help-desk');
    await call('POST', '/reserved_domains', { domain: `shop-portal.${SITE}` });
    await call('POST', '/reserved_domains', { domain: `*.log-in.${SITE}` });
    await call('POST', '/reserved_domains', { domain: `a.x-door.${SITE}` });
    for (const name of ['desk', 'portal', 'in', 'sts']) {
      const renamed = await call('PATCH', one.path, { name });
      expect(renamed.body.error_code, name).toBe('ERR_GATEWAY_DEVICE_STATE');
      expect((await join(name)).name).toBe(`${name}-2`);
    }
    expect((await join('door')).name).toBe('door');
  });

  it('is the device’s when it names its API, or when an operator has added a rule for it', async () => {
    const { bind, join, call, operator, store } = await setUp();
    const one = await join('one');
    const all = await operator(`bind:*.${SITE}`);
    for (const label of ['agent-one', 'shop-one']) expect(await bind(all, label)).toBe(null);
    expect(await bind(one.authtoken, 'agent-one')).toBe(null);
    expect(await bind(one.authtoken, 'shop-one')).toContain('belongs to another authtoken');
    const [credential] = store.credentials.page(null, 9).filter(({ acl }) => acl.includes(`bind:*-one.${SITE}`));
    await call('PATCH', `/credentials/${credential?.id}`, {
      acl: [...(credential?.acl ?? []), `bind:shop-one.${SITE}`],
    });
    expect(await bind(one.authtoken, 'shop-one')).toBe(null);
  });
});

it('a bind that is refused keeps no name', async () => {
  const { bind, join, operator, namesOf } = await setUp();
  const [one, two] = [await join('one'), await join('two')];
  for (const label of ['shop', `*.${SITE}`]) await bind(await operator(), label, true);
  await bind(one.authtoken, 'camera', true);
  expect([await bind(two.authtoken, 'shop'), await bind(two.authtoken, 'camera')]).toEqual([null, null]);
  expect([await namesOf(one), await namesOf(two)]).toEqual([[], ['camera', 'shop']]);
});

it('devices of a key with own_names_only, and those with enough names, get no more', async () => {
  const { bind, join, namesOf } = await setUp();
  const own = await join('own', { own_names_only: true });
  expect(await bind(own.authtoken, 'camera')).toContain(`only gets names that end in -own.${SITE}`);
  const one = await join('one');
  const labels = Array.from({ length: MAX_GRANTED }, (_, at) => `n${at}`);
  expect(await Promise.all(labels.map((label) => bind(one.authtoken, label)))).toEqual(labels.map(() => null));
  expect(await bind(one.authtoken, 'camera')).toContain(`has ${MAX_GRANTED} such names`);
  expect(await namesOf(one)).toHaveLength(MAX_GRANTED);
});

it('devices of a key with internal_names may bind internal names that end in their own, until that is taken from them', async () => {
  const { bind, join, call } = await setUp();
  const [one, two] = [await join('one', { internal_names: true }), await join('two')];
  const internal = `db-one.${SITE}.internal`;
  const others = ['db.internal', `db.${SITE}.internal`, `db-two.${SITE}.internal`, `a.db-one.${SITE}.internal`];
  expect(await bind(one.authtoken, internal)).toBe(null);
  expect(await bind(two.authtoken, internal)).toContain('rules do not allow');
  for (const name of others) expect(await bind(one.authtoken, name), name).toContain('rules do not allow');
  await call('PATCH', one.path, { name: 'first' });
  expect(await bind(one.authtoken, `db-first.${SITE}.internal`)).toBe(null);
  await call('PATCH', one.path, { internal_names: false });
  expect(await bind(one.authtoken, `db-first.${SITE}.internal`)).toContain('rules do not allow');
  expect(await bind(one.authtoken, 'cam-first')).toBe(null);
});

it('only one of many devices that ask at once gets a name', async () => {
  const { bind, join } = await setUp();
  const devices = await Promise.all(Array.from({ length: 10 }, (_, at) => join(`d${at}`)));
  const answers = await Promise.all(devices.map(({ authtoken }) => bind(authtoken, 'camera')));
  expect(answers.filter((answer) => answer === null)).toHaveLength(1);
});

it('a name is written once, however often it is bound', async () => {
  const { bind, join, operator, store } = await setUp();
  const one = await join('one');
  const all = await operator(`bind:*.${SITE}`);
  const bindAll = async () => [
    await bind(one.authtoken, 'camera'),
    await bind(all, 'shop'),
    await bind(one.authtoken, 'shop'),
  ];
  await bindAll();
  const { commits } = store.database;
  await bindAll();
  expect(store.database.commits).toBe(commits);
});

it('rules that an operator has added to the authtoken of a device stay when it is renamed and rotated', async () => {
  const { bind, join, call, store } = await setUp();
  const one = await join('one');
  const rulesOf = () => store.credentials.get(String(store.devices.page(null, 1)[0]?.credential_id))?.acl ?? [];
  const { credential_id } = store.devices.page(null, 1)[0] ?? {};
  await call('PATCH', `/credentials/${credential_id}`, { acl: [...rulesOf(), 'bind:www.example.com'] });
  await call('PATCH', one.path, { name: 'door' });
  expect(rulesOf()).toEqual([`bind:*-door.${SITE}`, `bind:*-one.${SITE}`, 'bind:www.example.com']);
  await one.again();
  expect(rulesOf()).toEqual([`bind:*-door.${SITE}`, 'bind:www.example.com']);
  for (let times = 0; times < 2; times++) {
    await call('POST', `${one.path}/rotate`);
    expect(await bind(await one.again(), 'camera')).toBe(null);
    expect(rulesOf()).toEqual([`bind:*-door.${SITE}`, 'bind:www.example.com']);
  }
});

it('an authtoken that binds ever new names below a site keeps some of them, and never takes all that devices could get', async () => {
  const { bind, join, operator, store } = await setUp({ burst: 2, perMs: 0 });
  const one = await join('one');
  const greedy = await operator();
  for (const name of ['a', 'b', 'c']) expect(await bind(greedy, name)).toBe(null);
  expect(store.siteNames.kept().map(({ hostname }) => hostname)).toEqual([`a.${SITE}`, `b.${SITE}`]);
  expect(await bind(one.authtoken, 'c')).toBe(null);
  await store.database.write(() => {
    for (let name = 0; name < 50_000; name++)
      store.siteNames.put({ hostname: `n${name}.${SITE}`, device_id: null, released_from: null });
  });
  expect(await bind(one.authtoken, 'camera')).toBe(null);
  expect(await bind(await operator(), 'full')).toBe(null);
  expect(store.siteNames.get(`full.${SITE}`)).toBe(null);
});
