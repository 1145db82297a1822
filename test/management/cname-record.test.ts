import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { CnameChecker, type CnameRecord, requiredRecords, zoneFileLine } from '../../src/management/cname-record.ts';
import { ReservedDomain } from '../../src/management/resources/reserved-domain.ts';
import { type DnsServer, startDnsServer } from '../support/dns-server.ts';

const record: CnameRecord = { name: '*.sitea.example.com', target: 'abc.cname.gateway.example', purpose: 'traffic' };

let dns: DnsServer;
beforeAll(async () => {
  dns = await startDnsServer();
});
beforeEach(() => {
  dns.records.clear();
  dns.failing = false;
});
afterAll(() => dns.close());

const check = () => new CnameChecker([dns.address]).check(record);

describe('the check of a record', () => {
  it('queries a name below the wildcard and ignores case', async () => {
    dns.records.set('*.sitea.example.com', 'ABC.cname.Gateway.example');
    expect(await check()).toEqual({ inPlace: true, found: 'CNAME abc.cname.gateway.example' });
    expect(dns.asked.at(-1)).toMatch(/^[a-z-]+\.sitea\.example\.com$/);
  });

  it('follows a chain of limited length', async () => {
    dns.records.set('*.sitea.example.com', 'one.example.com');
    dns.records.set('one.example.com', 'abc.cname.gateway.example');
    expect((await check()).inPlace).toBe(true);
    dns.records.set('one.example.com', 'two.example.com');
    dns.records.set('two.example.com', 'one.example.com');
    expect((await check()).inPlace).toBe(false);
  });

  it('reports the record that exists instead', async () => {
    expect((await check()).found).toContain('no CNAME record');
    dns.records.set('*.sitea.example.com', 'old.example.net');
    expect(await check()).toEqual({ inPlace: false, found: 'CNAME old.example.net' });
  });

  it('reports a failing resolver as a missing record, with the reason', async () => {
    dns.failing = true;
    expect(await check()).toEqual({ inPlace: false, found: expect.stringContaining('ESERVFAIL') });
  });
});

describe('the records of a domain', () => {
  const domain = (members: object) => ReservedDomain.parse({ id: 'rd_1', uri: 'u', created_at: 'c', ...members });

  it('are two for a wildcard, in the form of a zone file', () => {
    const wildcard = domain({
      domain: '*.sitea.example.com',
      cname_target: 'a.b.c',
      acme_challenge_cname_target: 'd.e',
    });
    expect(requiredRecords(wildcard).map(zoneFileLine)).toEqual([
      '*.sitea.example.com. 300 IN CNAME a.b.c.',
      '_acme-challenge.sitea.example.com. 300 IN CNAME d.e.',
    ]);
  });

  it('are one for a plain name, and none below the gateway’s own domain', () => {
    expect(requiredRecords(domain({ domain: 'a.example.com', cname_target: 'a.b.c' }))).toHaveLength(1);
    expect(requiredRecords(domain({ domain: 'a.gateway.example' }))).toEqual([]);
  });
});
