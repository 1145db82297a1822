import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ManagementClient } from '../../src/management/client.ts';
import {
  NotReadyInTime,
  type ProvisionEvent,
  type ProvisionOptions,
  provision,
} from '../../src/management/provision.ts';
import { type DnsServer, startDnsServer } from '../support/dns-server.ts';
import { json, refuse, startHttpService } from '../support/http-service.ts';
import { InstantClock } from '../support/instant-clock.ts';
import { type ManagementServer, startManagementServer } from '../support/management-server.ts';
import { failForDns, storeCertificate } from '../support/stored-certificates.ts';

const DOMAIN = '*.sitea.example.com';
const plan = { domain: DOMAIN, bot: 'site A' };

let server: ManagementServer;
let dns: DnsServer;
let client: ManagementClient;

beforeEach(async () => {
  server = await startManagementServer();
  dns = await startDnsServer();
  client = new ManagementClient({ baseUrl: server.url, apiKey: server.apiKey });
});
afterEach(() => Promise.all([server.close(), dns.close()]));

/** Options with the test's DNS server; calls `act` at every event. */
function watching(act: (event: ProvisionEvent) => unknown = () => {}): ProvisionOptions & { events: ProvisionEvent[] } {
  const events: ProvisionEvent[] = [];
  return {
    events,
    dnsServers: [dns.address],
    clock: new InstantClock(),
    onProgress: (event) => {
      events.push(event);
      act(event);
    },
  };
}

function addRecords(event: ProvisionEvent): void {
  if (event.step !== 'records') return;
  for (const { name, target } of event.records) dns.records.set(name, target);
}

async function counts() {
  const count = async (list: AsyncIterable<unknown>) => {
    let items = 0;
    for await (const _ of list) items += 1;
    return items;
  };
  return {
    domains: await count(client.reservedDomains.all()),
    bots: await count(client.botUsers.all()),
    credentials: await count(client.credentials.all()),
  };
}

describe('the first run', () => {
  it('creates the domain with a certificate policy, the bot user and an authtoken for this domain only', async () => {
    const site = await provision(client, { ...plan, wait: false });
    expect(site.domain).toMatchObject({
      domain: DOMAIN,
      certificate_management_policy: { authority: 'letsencrypt', private_key_type: 'rsa' },
    });
    expect(site.bot).toMatchObject({ name: 'site A', active: true });
    expect(site.records.map(({ name }) => name)).toEqual([DOMAIN, '_acme-challenge.sitea.example.com']);
    expect(site.certificate).toBe('pending');
    const { authtoken } = site;
    if (authtoken.kind !== 'created') throw new Error(authtoken.kind);
    expect(authtoken.token).toMatch(/^[0-9A-Za-z]+_[0-9A-Za-z]+$/);
    expect(await client.credentials.get(authtoken.id)).toMatchObject({
      acl: [`bind:${DOMAIN}`],
      owner_id: site.bot.id,
    });
  });

  it('waits for DNS and the certificate, and reports each change once', async () => {
    const options = watching((event) => {
      if (event.step === 'certificate' && event.state === 'waiting') {
        void server.store.reservedDomains.page(null, 1).map(({ id }) => storeCertificate(server.store, id));
      }
      if (event.step !== 'dns' || event.inPlace) return;
      // One record is wrong at first, the other exists at once.
      const wrong = dns.records.get(event.record.name) === undefined;
      dns.records.set(
        event.record.name,
        wrong && event.record.purpose === 'traffic' ? 'old.example.net' : event.record.target,
      );
    });
    const site = await provision(client, plan, options);
    expect(site.certificate).toBe('ready');
    const told = options.events.map((event) =>
      event.step === 'dns'
        ? `dns ${event.record.purpose} ${event.inPlace}`
        : event.step === 'certificate'
          ? `certificate ${event.state}`
          : event.step,
    );
    expect(told).toEqual([
      'domain',
      'bot',
      'records',
      'dns traffic false',
      'dns certificate false',
      'dns traffic false',
      'dns certificate true',
      'dns traffic true',
      'certificate waiting',
      'certificate ready',
    ]);
  });

  it('creates no authtoken when waiting fails, because its value would be lost', async () => {
    const run = provision(client, plan, { ...watching(), waitMs: 60_000 });
    await expect(run).rejects.toThrow(NotReadyInTime);
    await expect(run).rejects.toThrow(
      'DNS records still missing: *.sitea.example.com, _acme-challenge.sitea.example.com',
    );
    expect(await counts()).toEqual({ domains: 1, bots: 1, credentials: 0 });
  });

  it('can be interrupted while it waits', async () => {
    const abort = new AbortController();
    const options = watching((event) => event.step === 'dns' && abort.abort());
    await expect(provision(client, plan, { ...options, signal: abort.signal })).rejects.toThrow('aborted');
    expect((await counts()).credentials).toBe(0);
  });

  it('retries a failed certificate job as soon as the DNS records exist', async () => {
    const { domain } = await provision(client, { ...plan, wait: false });
    await failForDns(server.store, domain.id);
    const options = watching((event) => {
      addRecords(event);
      if (event.step === 'certificate' && event.state === 'waiting') void storeCertificate(server.store, domain.id);
    });
    const sent: (string | undefined)[] = [];
    const watched = new ManagementClient({
      baseUrl: server.url,
      apiKey: server.apiKey,
      fetch: (url, init) => {
        if (init.method === 'PATCH') sent.push(init.body);
        return fetch(url, init);
      },
    });
    expect((await provision(watched, plan, options)).certificate).toBe('ready');
    // Complete, because another API may have no defaults for these members.
    const policy = { authority: 'letsencrypt', private_key_type: 'rsa' };
    expect(sent).toEqual([JSON.stringify({ certificate_management_policy: policy })]);
    const states = options.events.flatMap((event) => (event.step === 'certificate' ? [event.state] : []));
    expect(states).toEqual(['waiting', 'ready']);
  });

  it('reports why the certificate is not issued', async () => {
    const { domain } = await provision(client, { ...plan, wait: false });
    const options = watching((event) => {
      addRecords(event);
      if (event.step === 'certificate' && event.state === 'waiting') void failForDns(server.store, domain.id);
    });
    await expect(provision(client, plan, { ...options, waitMs: 60_000 })).rejects.toThrow('No CNAME record.');
    expect(options.events.at(-1)).toEqual({
      step: 'certificate',
      state: 'failing',
      message: 'No CNAME record.',
      retriesAt: '2099-01-01T00:00:00Z',
    });
  });
});

describe('the second run', () => {
  it('finds everything, creates nothing, and cannot show the authtoken again', async () => {
    const first = await provision(client, { ...plan, wait: false });
    const second = await provision(client, { domain: '*.SiteA.example.com.', bot: 'site A', wait: false });
    expect(second.authtoken).toEqual({
      kind: 'existing',
      id: first.authtoken.kind === 'created' && first.authtoken.id,
    });
    expect(second).toMatchObject({ domain: { id: first.domain.id }, bot: { id: first.bot.id } });
    expect(await counts()).toEqual({ domains: 1, bots: 1, credentials: 1 });
  });

  it('adds TCP addresses to the authtoken that devices have', async () => {
    const first = await provision(client, { ...plan, wait: false });
    const tcp = 'tcp.gateway.test:20000-20099';
    for (const _ of [1, 2]) {
      const { authtoken } = await provision(client, { ...plan, wait: false, tcp });
      expect(authtoken).toMatchObject({ kind: 'existing', id: 'id' in first.authtoken ? first.authtoken.id : '' });
      const credential = await client.credentials.get('id' in authtoken ? authtoken.id : '');
      expect(credential.acl).toEqual([`bind:${DOMAIN}`, `bind:${tcp}`]);
    }
    expect((await counts()).credentials).toBe(1);
  });

  it('replaces only the site’s authtoken with rotate', async () => {
    const first = await provision(client, { ...plan, wait: false });
    const other = await client.credentials.create({ owner_id: first.bot.id, acl: [`bind:${DOMAIN}`] });
    const rotated = await provision(client, { ...plan, wait: false, rotate: true });
    expect(rotated.authtoken.kind).toBe('created');
    const left: string[] = [];
    for await (const { id } of client.credentials.all()) left.push(id);
    expect(left.sort()).toEqual([other.id, rotated.authtoken.kind === 'created' && rotated.authtoken.id].sort());
  });

  it('returns the new authtoken even when the old one cannot be deleted, or is already deleted', async () => {
    const { authtoken: first } = await provision(client, { ...plan, wait: false });
    const beforeDeletion = (act: () => Promise<unknown>) =>
      new ManagementClient({
        baseUrl: server.url,
        apiKey: server.apiKey,
        fetch: async (url, init) => {
          if (init.method === 'DELETE') await act();
          return fetch(url, init);
        },
      });
    const broken = beforeDeletion(() => Promise.reject(new Error('the network is gone')));
    const rotated = await provision(broken, { ...plan, wait: false, rotate: true });
    expect(rotated.authtoken).toMatchObject({
      kind: 'created',
      token: expect.any(String),
      notDeleted: [{ id: 'id' in first && first.id, reason: expect.stringContaining('the network is gone') }],
    });
    const late = beforeDeletion(async () => {
      for await (const { id } of client.credentials.all({ limit: 3 })) {
        if ('id' in first && id === first.id) await client.credentials.delete(id);
      }
    });
    const again = await provision(late, { ...plan, wait: false, rotate: true });
    expect(again.authtoken).toMatchObject({ kind: 'created', notDeleted: [] });
    expect((await counts()).credentials).toBe(1);
  });

  it('continues a run that stopped after its first step', async () => {
    await client.reservedDomains.create({ domain: DOMAIN });
    const options = watching();
    const site = await provision(client, { ...plan, wait: false, privateKeyType: 'ecdsa' }, options);
    expect(site.domain.certificate_management_policy?.private_key_type).toBe('ecdsa');
    expect(options.events[0]).toMatchObject({ step: 'domain', outcome: 'updated' });
    expect((await counts()).domains).toBe(1);
  });

  it('finds a domain and a bot user on a later page', async () => {
    const first = await provision(client, { ...plan, wait: false });
    await Promise.all(Array.from({ length: 120 }, (_, n) => client.botUsers.create({ name: `site ${n}` })));
    expect((await provision(client, { ...plan, wait: false })).bot.id).toBe(first.bot.id);
  });
});

describe('existing resources', () => {
  it('uses the oldest active bot user of the name, and rejects an inactive one', async () => {
    const inactive = await client.botUsers.create({ name: 'site A', active: false });
    await expect(provision(client, { ...plan, wait: false })).rejects.toThrow(`(${inactive.id}) is inactive`);
    const oldest = await client.botUsers.create({ name: 'site A' });
    await client.botUsers.create({ name: 'site A' });
    expect((await provision(client, { ...plan, wait: false })).bot.id).toBe(oldest.id);
  });

  it('needs no records, policy or waiting below the gateway’s own domain', async () => {
    const site = await provision(client, { domain: '*.sitea.gateway.test', bot: 'site A' }, watching());
    expect(site).toMatchObject({ records: [], certificate: 'none', domain: { certificate_management_policy: null } });
    expect(dns.asked).toEqual([]);
    expect((await provision(client, { domain: '*.sitea.gateway.test', bot: 'site A' })).authtoken.kind).toBe(
      'existing',
    );
  });
});

describe('errors', () => {
  it('an invalid domain or bot user is reported before anything is created', async () => {
    await expect(provision(client, { ...plan, domain: 'a.*.example.com' })).rejects.toMatchObject({ exitCode: 2 });
    // An unset shell variable must not select a bot user without a name.
    await expect(provision(client, { ...plan, bot: ' ' })).rejects.toMatchObject({ exitCode: 2 });
    expect(await counts()).toEqual({ domains: 0, bots: 0, credentials: 0 });
  });

  it('returns instructions to create the authtoken by hand when the API has no path for it', async () => {
    const bot = { id: 'bot_1', uri: 'u', name: 'site A', active: true, created_at: 'c' };
    const domain = { id: 'rd_1', uri: 'u', created_at: 'c', domain: DOMAIN, cname_target: 'a.b.c' };
    const service = await startHttpService(
      json(200, { reserved_domains: [], next_page_uri: null }),
      json(201, domain),
      json(200, { bot_users: [bot], next_page_uri: null }),
      refuse(404, null),
    );
    const cloud = new ManagementClient({ baseUrl: service.url, apiKey: 'a_b' });
    const site = await provision(cloud, { ...plan, wait: false });
    expect(site.authtoken).toEqual({ kind: 'by-hand', owner: 'bot_1', acl: `bind:${DOMAIN}` });
    await service.close();
  });
});
