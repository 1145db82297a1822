import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { allowedByCaa } from '../../../../src/gateway/certificates/acme/acme-issuer.ts';
import { checkRecords, DnsLookup } from '../../../../src/gateway/certificates/issuing/dns-check.ts';
import { NameServer } from '../../../support/name-server.ts';

const TARGET = 'abc.def.cname.gateway.test';
const CHALLENGE_TARGET = 'k3j9x2ab.acme.gateway.test';
const plain = ['shop.example.test', { cname_target: TARGET, acme_challenge_cname_target: null }] as const;
const wildcard = [
  '*.site.example.test',
  { cname_target: TARGET, acme_challenge_cname_target: CHALLENGE_TARGET },
] as const;

let dns: NameServer;
let lookup: DnsLookup;

beforeEach(async () => {
  dns = await NameServer.start();
  lookup = new DnsLookup([dns.address], new AbortController().signal);
});
afterEach(() => dns.stop());

describe('the records of a domain', () => {
  it.each<[string, () => void]>([
    ['a CNAME to the target', () => dns.cname('shop.example.test', TARGET)],
    ['a CNAME in another letter case', () => dns.cname('shop.example.test', TARGET.toUpperCase())],
    [
      'a chain of CNAMEs to the target',
      () => {
        dns.cname('shop.example.test', 'proxy.example.test');
        dns.cname('proxy.example.test', TARGET);
      },
    ],
    [
      'the target’s addresses, at a zone’s apex',
      () => {
        dns.add({ type: 'A', name: 'shop.example.test', data: '192.0.2.1' });
        dns.add({ type: 'A', name: TARGET, data: '192.0.2.1' });
        dns.add({ type: 'AAAA', name: TARGET, data: '2001:db8::1' });
      },
    ],
  ])('may be %s', async (_title, arrange) => {
    arrange();
    await expect(checkRecords(...plain, lookup)).resolves.toBeUndefined();
  });

  it.each<[string, () => void, string]>([
    ['missing', () => {}, 'no such record'],
    ['a CNAME to another target', () => dns.cname('shop.example.test', 'other.test'), 'a CNAME to other.test'],
    [
      'a chain of CNAMEs to another target',
      () => {
        dns.cname('shop.example.test', 'proxy.example.test');
        dns.cname('proxy.example.test', 'other.test');
      },
      'a CNAME to proxy.example.test, then to other.test',
    ],
    [
      'another server’s address beside the gateway’s',
      () => {
        for (const data of ['192.0.2.1', '192.0.2.9']) dns.add({ type: 'A', name: 'shop.example.test', data });
        dns.add({ type: 'A', name: TARGET, data: '192.0.2.1' });
      },
      'no CNAME but the addresses 192.0.2.1, 192.0.2.9',
    ],
    [
      'a loop of CNAMEs',
      () => {
        dns.cname('shop.example.test', 'a.example.test');
        dns.cname('a.example.test', 'shop.example.test');
      },
      'an endless chain of CNAMEs, starting with a.example.test, then shop.example.test',
    ],
  ])('are refused when they are %s', async (_title, arrange, found) => {
    arrange();
    await expect(checkRecords(...plain, lookup)).rejects.toMatchObject({
      code: 'DNS_ERROR',
      message: `The DNS record shop.example.test must be a CNAME to ${TARGET}. Found: ${found}.`,
    });
  });

  it('are two for a wildcard, and the error names the wrong one', async () => {
    const wrong = (message: string) => ({ code: 'DNS_ERROR', message: expect.stringContaining(message) });
    await expect(checkRecords(...wildcard, lookup)).rejects.toMatchObject(wrong('record *.site.example.test must'));
    dns.cname('*.site.example.test', TARGET);
    dns.remove('_acme-challenge.site.example.test');
    // The wildcard answers for this name too, with the wrong target.
    await expect(checkRecords(...wildcard, lookup)).rejects.toMatchObject(
      wrong(`record _acme-challenge.site.example.test must be a CNAME to ${CHALLENGE_TARGET}`),
    );
    dns.cname('_acme-challenge.site.example.test', CHALLENGE_TARGET);
    await expect(checkRecords(...wildcard, lookup)).resolves.toBeUndefined();
  });

  it('that cannot be looked up are an internal error', async () => {
    dns.break('shop.example.test');
    await expect(checkRecords(...plain, lookup)).rejects.toMatchObject({
      code: 'INTERNAL_ERROR',
      message: 'The DNS lookup of CNAME of shop.example.test failed (ESERVFAIL).',
    });
  });

  it('are no longer looked up once the job is cancelled', async () => {
    const abort = new AbortController();
    const silent = await NameServer.start();
    await silent.stop();
    const check = checkRecords(...plain, new DnsLookup([silent.address], abort.signal));
    abort.abort(new Error('cancelled'));
    await expect(check).rejects.toThrow('cancelled');
  });
});

describe('the gateway’s own names', () => {
  const none = { cname_target: null, acme_challenge_cname_target: null };
  const check = () => checkRecords('api.gateway.test', none, lookup);

  it('may have any address, for example of a NAT router', async () => {
    dns.add({ type: 'A', name: 'api.gateway.test', data: '192.0.2.1' });
    await expect(check()).resolves.toBeUndefined();
  });

  it('must have an address', async () => {
    await expect(check()).rejects.toMatchObject({
      code: 'DNS_ERROR',
      message: 'The DNS record api.gateway.test must point to this gateway. Found: no address.',
    });
  });
});

describe('CAA records', () => {
  const METHODS = ['http-01', 'tls-alpn-01'] as const;
  const caa = (name: string, tag: 'issue' | 'issuewild' | 'iodef', value: string) =>
    dns.add({ type: 'CAA', name, data: { flags: 0, tag, value } });
  const allowed = (domain: string) => allowedByCaa(domain, ['letsencrypt.org'], METHODS, lookup);

  it('that are absent or unrestricted allow every method', async () => {
    await expect(allowed('shop.example.test')).resolves.toEqual(METHODS);
    caa('example.test', 'iodef', 'mailto:ops@example.test');
    await expect(allowed('shop.example.test')).resolves.toEqual(METHODS);
  });

  it('of the closest name forbid other CAs', async () => {
    caa('example.test', 'issue', 'other-ca.test');
    await expect(allowed('shop.example.test')).rejects.toMatchObject({
      code: 'DNS_ERROR',
      message: 'The CAA record of example.test must allow letsencrypt.org. Found: "other-ca.test".',
    });
    caa('shop.example.test', 'issue', 'letsencrypt.org');
    await expect(allowed('shop.example.test')).resolves.toEqual(METHODS);
  });

  it('treat wildcards separately', async () => {
    caa('example.test', 'issue', 'letsencrypt.org');
    await expect(allowed('*.example.test')).resolves.toEqual(METHODS);
    caa('example.test', 'issuewild', ';');
    await expect(allowed('*.example.test')).rejects.toMatchObject({ code: 'DNS_ERROR' });
    await expect(allowed('example.test')).resolves.toEqual(METHODS);
  });

  it('may allow specific validation methods only', async () => {
    caa('a.test', 'issue', 'letsencrypt.org; validationmethods=dns-01,tls-alpn-01');
    await expect(allowed('a.test')).resolves.toEqual(['tls-alpn-01']);
    caa('b.test', 'issue', 'letsencrypt.org; validationmethods=dns-01');
    await expect(allowed('b.test')).rejects.toMatchObject({
      message: expect.stringContaining('must allow http-01 or tls-alpn-01 for letsencrypt.org'),
    });
  });

  it('that cannot be looked up stop the order', async () => {
    dns.break('shop.example.test');
    await expect(allowed('shop.example.test')).rejects.toMatchObject({ code: 'INTERNAL_ERROR' });
  });
});
