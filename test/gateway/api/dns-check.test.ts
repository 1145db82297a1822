import { afterEach, beforeEach, expect, it } from 'vitest';
import type { DnsCheck } from '../../../src/management/resources/reserved-domain.ts';
import { type ManagementServer, startManagementServer } from '../../support/management-server.ts';
import { NameServer } from '../../support/name-server.ts';

let dns: NameServer;
let server: ManagementServer;

beforeEach(async () => {
  dns = await NameServer.start();
  server = await startManagementServer({ dnsServers: [dns.address] });
});
afterEach(async () => {
  await server.close();
  await dns.stop();
});

async function reserve(domain: string): Promise<Record<string, string>> {
  return (await server.call('POST', '/reserved_domains', { domain })).body as Record<string, string>;
}

async function check(id = ''): Promise<DnsCheck> {
  const answer = await server.call('POST', `/reserved_domains/${id}/check_dns`);
  expect(answer.status).toBe(200);
  return answer.body as unknown as DnsCheck;
}

it('says which records of a wildcard domain are in place, and what is there instead', async () => {
  const { id, cname_target = '', acme_challenge_cname_target: challenge = '' } = await reserve('*.site.example.com');
  dns.cname('_acme-challenge.site.example.com', 'other.example.com');
  expect((await check(id)).records).toEqual([
    {
      name: '*.site.example.com',
      target: cname_target,
      purpose: 'traffic',
      in_place: false,
      found: 'no such record',
    },
    {
      name: '_acme-challenge.site.example.com',
      target: challenge,
      purpose: 'certificate',
      in_place: false,
      found: 'a CNAME to other.example.com',
    },
  ]);
  dns.remove('_acme-challenge.site.example.com');
  dns.cname('_acme-challenge.site.example.com', challenge);
  dns.cname('*.site.example.com', cname_target);
  const { records, checked_at } = await check(id);
  expect(records.map(({ in_place }) => in_place)).toEqual([true, true]);
  expect(checked_at).toMatch(/^\d{4}-.*Z$/);
});

it('below the gateway’s own domain, an address suffices', async () => {
  const { id } = await reserve('cam.gateway.test');
  const record = { name: 'cam.gateway.test', target: null, purpose: 'traffic' };
  expect((await check(id)).records).toEqual([{ ...record, in_place: false, found: 'no address' }]);
  dns.add({ type: 'A', name: 'cam.gateway.test', data: '192.0.2.7' });
  expect((await check(id)).records).toEqual([{ ...record, in_place: true, found: '192.0.2.7' }]);
});

it('a resolver that fails is a finding, not an error', async () => {
  const { id } = await reserve('shop.example.com');
  dns.break('shop.example.com');
  const { records } = await check(id);
  expect(records).toMatchObject([{ in_place: false, found: expect.stringContaining('The DNS lookup of CNAME') }]);
});

it('asks DNS about reserved domains only: an unknown id is 404, and nothing is looked up', async () => {
  const answer = await server.call('POST', '/reserved_domains/rd_32ELFeTyzStvllGupngXcSO5GUy/check_dns');
  expect(answer.status).toBe(404);
  expect(dns.asked).toEqual([]);
});

it('checks of the same domain at the same time share one lookup', async () => {
  const { id } = await reserve('shop.example.com');
  dns.cname('shop.example.com', 'elsewhere.example.com');
  const [first, second] = await Promise.all([check(id), check(id)]);
  expect(second).toEqual(first);
  expect(dns.asked.filter((each) => each === 'CNAME shop.example.com')).toHaveLength(1);
});
