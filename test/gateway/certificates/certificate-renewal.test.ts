import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { pendingRevocations, revokeCertificate } from '../../../src/gateway/certificates/certificate-errands.ts';
import { CertificateRenewal } from '../../../src/gateway/certificates/certificate-renewal.ts';
import {
  type CertificateIssuer,
  IssueError,
  type IssueRequest,
  type RenewalAdvice,
} from '../../../src/gateway/certificates/issuing/certificate-issuer.ts';
import type { ReservedDomainRow } from '../../../src/gateway/store/domains.ts';
import { openStore } from '../../../src/gateway/store/store.ts';
import { type Clock, systemClock } from '../../../src/lib/time/clock.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { NO_ACTIVITY } from '../../support/edge-context.ts';
import { type ManagementServer, startManagementServer } from '../../support/management-server.ts';
import { recordingLog } from '../../support/silent-log.ts';

const DAY = 86_400_000;
const START = Date.parse('2026-05-01T12:00:00Z');
const POLICY = { certificate_management_policy: { authority: 'letsencrypt', private_key_type: 'ecdsa' } };

/** Sleeps until woken; tests set the wall clock. */
const sleepUntilWoken: Clock = { ...systemClock, sleep: (_ms, signal) => systemClock.sleep(2 ** 30, signal) };

/** An issuer whose orders wait until the test grants or fails them. */
class ManualIssuer implements CertificateIssuer {
  readonly usesOurClock = true;
  readonly orders: { request: IssueRequest; signal: AbortSignal; fail(error: Error): void; grant(): Promise<void> }[] =
    [];

  /** What it says about the renewal of each certificate. */
  advice: RenewalAdvice | null = null;

  constructor(private readonly now: () => number) {}

  async renewalAdvice(): Promise<RenewalAdvice | null> {
    return this.advice;
  }

  issue(request: IssueRequest, signal: AbortSignal) {
    return new Promise<{ certificatePem: string; privateKeyPem: string }>((resolve, reject) => {
      const grant = async () => {
        const dates = { notBefore: new Date(this.now()), notAfter: new Date(this.now() + 90 * DAY) };
        resolve(await issueCertificate({ subject: `CN=${request.domain}`, names: [request.domain], ...dates }));
      };
      this.orders.push({ request, signal, fail: reject, grant });
    });
  }
}

let now: number;
let server: ManagementServer;
let issuer: ManualIssuer;
let lines: Record<string, unknown>[];
let renewal: CertificateRenewal<ReservedDomainRow>;

async function startRenewal(): Promise<void> {
  const recording = recordingLog();
  const { log } = recording;
  lines = recording.lines;
  const wallClock = () => now;
  issuer = new ManualIssuer(wallClock);
  const { store } = server;
  const context = { store, activity: NO_ACTIVITY, clock: sleepUntilWoken, log };
  renewal = new CertificateRenewal(context, store.reservedDomains, issuer, wallClock);
  renewal.start();
}

beforeEach(async () => {
  now = START;
  server = await startManagementServer({ wallClock: () => now, wake: () => renewal.wake() });
  await startRenewal();
});
afterEach(async () => {
  await renewal.stop();
  await server.close();
});

async function reserve(domain = '*.dev.example.com'): Promise<string> {
  return (await server.call('POST', '/reserved_domains', { domain, ...POLICY })).id;
}
async function read(id: string): Promise<Record<string, unknown>> {
  return (await server.call('GET', `/reserved_domains/${id}`)).body;
}
async function order(index: number): Promise<ManualIssuer['orders'][number]> {
  await expect.poll(() => issuer.orders.length).toBeGreaterThan(index);
  const found = issuer.orders[index];
  if (!found) throw new Error('no order');
  return found;
}
function logged(msg: string): number {
  return lines.filter((line) => line.msg === msg).length;
}
function advanceTo(time: string): void {
  now = Date.parse(time);
  renewal.wake();
}

describe('the certificate of a policy', () => {
  it('is issued and due for renewal after two thirds of its lifetime', async () => {
    const id = await reserve();
    const { request, grant } = await order(0);
    expect(request).toMatchObject({
      domain: '*.dev.example.com',
      privateKeyType: 'ecdsa',
      replaces: null,
      begun: null,
    });
    await grant();
    await expect.poll(async () => (await read(id)).certificate).not.toBeNull();
    const domain = await read(id);
    expect(domain.certificate_management_status).toEqual({ renews_at: '2026-06-30T00:00:00Z', provisioning_job: null });
    const certificateId = (domain.certificate as { id: string }).id;
    const certificate = await server.call('GET', `/tls_certificates/${certificateId}`);
    expect(certificate.body).toMatchObject({ issued_at: '2026-05-01T12:00:00Z', private_key_type: 'ecdsa' });
    expect(server.store.tlsCertificates.keyPair(certificateId)?.privateKeyPem).toContain('PRIVATE KEY');
  });

  it('is renewed in time and stays until the new one is issued', async () => {
    const id = await reserve();
    await (await order(0)).grant();
    await expect.poll(async () => (await read(id)).certificate).not.toBeNull();
    const { certificate: old } = await read(id);
    advanceTo('2026-06-30T00:00:00Z');
    const { grant } = await order(1);
    expect(await read(id)).toMatchObject({
      certificate: old,
      certificate_management_status: {
        renews_at: '2026-06-30T00:00:00Z',
        provisioning_job: { error_code: null, started_at: '2026-06-30T00:00:00Z', retries_at: null },
      },
    });
    await grant();
    await expect.poll(async () => (await read(id)).certificate).not.toEqual(old);
    expect(await read(id)).toMatchObject({ certificate_management_status: { renews_at: '2026-08-29T00:00:00Z' } });
    expect((await server.call('GET', `/tls_certificates/${(old as { id: string }).id}`)).status).toBe(404);
  });

  it.each([
    ['DNS_ERROR', 60],
    ['INTERNAL_ERROR', 30],
  ] as const)('is retried after a %s with growing delays, which the status shows', async (code, seconds) => {
    const id = await reserve();
    for (let attempt = 0; attempt < 9; attempt += 1) {
      (await order(attempt)).fail(new IssueError(code, 'The record was not found.'));
      const retriesAt = new Date(now + 1000 * Math.min(3600, seconds * 2 ** attempt)).toISOString();
      const retries_at = retriesAt.replace('.000Z', 'Z');
      const job = {
        error_code: code,
        msg: 'The record was not found.',
        started_at: '2026-05-01T12:00:00Z',
        retries_at,
      };
      await expect
        .poll(async () => (await read(id)).certificate_management_status)
        .toEqual({ renews_at: null, provisioning_job: job });
      advanceTo(retries_at);
    }
  });

  it.each([
    [3600, '2026-05-01T13:00:00Z'],
    [5, '2026-05-01T12:00:30Z'],
    [10 * 365 * 86_400, '2026-05-08T12:00:00Z'],
  ])(
    'is retried after the CA’s Retry-After of %i s, but after 30 s at the earliest and a week at the latest',
    async (retryAfter, retries_at) => {
      const id = await reserve();
      (await order(0)).fail(new IssueError('INTERNAL_ERROR', 'Too many orders.', { retryAfter }));
      await expect
        .poll(async () => (await read(id)).certificate_management_status)
        .toMatchObject({ provisioning_job: { error_code: 'INTERNAL_ERROR', retries_at } });
    },
  );

  it('that is not issued is logged with the expiry of the current one', async () => {
    await reserve();
    await (await order(0)).grant();
    await expect.poll(() => lines.map(({ msg }) => msg)).toContain('certificate issued');
    advanceTo('2026-06-30T00:00:00Z');
    (await order(1)).fail(new IssueError('DNS_ERROR', 'The record was not found.'));
    const logged = { msg: 'certificate not issued', error_code: 'DNS_ERROR', expires_at: '2026-07-30T12:00:00Z' };
    await expect.poll(() => lines).toContainEqual(expect.objectContaining(logged));
  });

  it('is reported without details after an unexpected failure', async () => {
    const id = await reserve();
    (await order(0)).fail(new Error('ENOENT /secret/path'));
    const job = { error_code: 'INTERNAL_ERROR', msg: expect.not.stringContaining('secret') };
    await expect
      .poll(async () => (await read(id)).certificate_management_status)
      .toMatchObject({ provisioning_job: job });
  });

  it('is retried immediately when the policy is sent again while the job fails', async () => {
    const id = await reserve();
    (await order(0)).fail(new IssueError('DNS_ERROR', 'no'));
    await expect
      .poll(async () => (await read(id)).certificate_management_status)
      .toMatchObject({ provisioning_job: { error_code: 'DNS_ERROR' } });
    now += 1000;
    const { body } = await server.call('PATCH', `/reserved_domains/${id}`, POLICY);
    expect(body).toMatchObject({ certificate_management_status: { provisioning_job: { error_code: null } } });
    await (await order(1)).grant();
    await expect.poll(async () => (await read(id)).certificate).not.toBeNull();
  });

  it('is no longer ordered after the policy is detached; a late one is discarded', async () => {
    const id = await reserve();
    const { grant, signal } = await order(0);
    await server.call('DELETE', `/reserved_domains/${id}/certificate_management_policy`);
    await expect.poll(() => signal.aborted).toBe(true);
    await grant();
    expect(await read(id)).toMatchObject({ certificate: null, certificate_management_status: null });
    expect((await server.call('GET', '/tls_certificates')).body.tls_certificates).toEqual([]);
  });

  it.each(['while it runs', 'before it starts again'])(
    'is issued and renewed on time after a clock that was ahead is set back %s',
    async (when) => {
      const setBack = async () => {
        if (when !== 'while it runs') await renewal.stop();
        now = START;
        if (when === 'while it runs') renewal.wake();
        else await startRenewal();
      };
      now = START + 10 * 365 * DAY;
      const granted = await reserve('granted.example.com');
      await (await order(0)).grant();
      const failing = await reserve('failing.example.com');
      (await order(1)).fail(new IssueError('INTERNAL_ERROR', 'not now'));
      await expect.poll(async () => (await read(granted)).certificate).not.toBeNull();
      await expect.poll(async () => JSON.stringify(await read(failing))).toContain('not now');
      const { length } = issuer.orders;
      await setBack();
      const next = when === 'while it runs' ? length : 0;
      const orders = [await order(next), await order(next + 1)];
      expect(orders.map(({ request }) => request.domain).sort()).toEqual([
        'failing.example.com',
        'granted.example.com',
      ]);
      for (const { grant } of orders) await grant();
      for (const id of [granted, failing]) {
        await expect
          .poll(async () => (await read(id)).certificate_management_status)
          .toEqual({ renews_at: '2026-06-30T00:00:00Z', provisioning_job: null });
      }
    },
  );

  it.each(['its policy is changed', 'a clock that was ahead is set back', 'its failing job is restarted'])(
    'is still revoked when %s before it is replaced',
    async (what) => {
      now = START + 10 * 365 * DAY;
      const id = await reserve('leaked.example.com');
      await (await order(0)).grant();
      await expect.poll(async () => (await read(id)).certificate).not.toBeNull();
      const row = () => server.store.reservedDomains.get(id);
      const leaked = server.store.tlsCertificates.get(String(row()?.certificate_id))?.certificate_pem;
      await revokeCertificate(server.store, 'leaked.example.com', 'keyCompromise');
      renewal.wake();
      const { request, fail } = await order(1);
      await request.keep?.({ authority: 'ca', url: 'https://ca.example/order/1', privateKeyPem: 'key' });
      if (what === 'its policy is changed') {
        const policy = { authority: 'letsencrypt', private_key_type: 'rsa' };
        await server.call('PATCH', `/reserved_domains/${id}`, { certificate_management_policy: policy });
      } else {
        fail(new IssueError('INTERNAL_ERROR', 'not now'));
        await expect.poll(() => row()?.job?.retries_at).not.toBeNull();
        if (what !== 'a clock that was ahead is set back')
          await server.call('PATCH', `/reserved_domains/${id}`, POLICY);
        else now = START;
      }
      renewal.wake();
      const again = await order(2);
      // Its key is of another type otherwise.
      const goesOn = what !== 'its policy is changed';
      expect(again.request.begun?.url).toBe(goesOn ? 'https://ca.example/order/1' : undefined);
      await again.grant();
      const pending = () => pendingRevocations(server.store.database);
      await expect.poll(pending).toEqual([{ certificate: leaked, reason: 'keyCompromise' }]);
    },
  );

  it.each(['its domain is deleted', 'another one is uploaded', 'its policy is detached', 'no other one is issued'])(
    'is still revoked when %s before it is replaced',
    async (what) => {
      const id = await reserve('leaked.example.com');
      await (await order(0)).grant();
      await expect.poll(async () => (await read(id)).certificate).not.toBeNull();
      const row = () => server.store.reservedDomains.get(id);
      const leaked = server.store.tlsCertificates.get(String(row()?.certificate_id))?.certificate_pem;
      const revoke = (isAtOnce: boolean) =>
        revokeCertificate(server.store, 'leaked.example.com', 'keyCompromise', { isAtOnce });
      await revoke(false);
      renewal.wake();
      (await order(1)).fail(new IssueError('DNS_ERROR', 'not now'));
      await expect.poll(() => row()?.job?.retries_at).not.toBeNull();
      const pending = () => pendingRevocations(server.store.database);
      expect(pending()).toEqual([]);

      if (what === 'no other one is issued') for (const _ of ['once', 'twice']) await revoke(true);
      else if (what === 'its domain is deleted') await server.call('DELETE', `/reserved_domains/${id}`);
      else if (what === 'its policy is detached')
        await server.call('DELETE', `/reserved_domains/${id}/certificate_management_policy`);
      else {
        const uploaded = await issueCertificate({ subject: 'CN=leaked', names: ['leaked.example.com'] });
        const pair = { certificate_pem: uploaded.certificatePem, private_key_pem: uploaded.privateKeyPem };
        const { body } = await server.call('POST', '/tls_certificates', pair);
        await server.call('PATCH', `/reserved_domains/${id}`, { certificate_id: body.id });
      }
      expect(pending()).toEqual([{ certificate: leaked, reason: 'keyCompromise' }]);
    },
  );

  it.each([
    ['keyCompromise', 'a day later, though no other one is issued'],
    ['superseded', 'never, as long as no other one is issued'],
  ] as const)('with the reason %s, it is revoked %s', async (reason, _outcome) => {
    const id = await reserve('leaked.example.com');
    await (await order(0)).grant();
    await expect.poll(async () => (await read(id)).certificate).not.toBeNull();
    const row = () => server.store.reservedDomains.get(id);
    const used = row()?.certificate_id;
    const leaked = server.store.tlsCertificates.get(String(used))?.certificate_pem;
    const failNext = async (index: number) => {
      (await order(index)).fail(new IssueError('INTERNAL_ERROR', 'not now', { retryAfter: 7 * 86_400 }));
      await expect.poll(() => row()?.job?.error_code).toBe('INTERNAL_ERROR');
    };
    await revokeCertificate(server.store, 'leaked.example.com', reason);
    renewal.wake();
    await failNext(1);
    const isLeaked = reason === 'keyCompromise';
    const said = () => server.conditions().then((all) => all.find((each) => each.id === 'domain_certificate')?.message);
    const latest = isLeaked ? ', at 2026-05-02T12:00:00Z at the latest' : '';
    expect(await said()).toContain(
      `it is revoked once there is another one${latest}: device-agent gateway certificates revoke 'leaked.example.com' --now does not wait`,
    );

    // Repeated, it is not put off.
    now += DAY / 2;
    await revokeCertificate(server.store, 'leaked.example.com', reason);
    renewal.wake();
    await failNext(2);
    const pending = () => pendingRevocations(server.store.database);
    advanceTo('2026-05-02T11:59:00Z');
    for (let turns = 0; turns < 5; turns++) await nextTurn();
    expect(pending()).toEqual([]);
    advanceTo('2026-05-02T12:00:00Z');
    if (isLeaked) await expect.poll(pending).toEqual([{ certificate: leaked, reason }]);
    else advanceTo('2026-08-01T12:00:00Z');
    expect(await said()).not.toContain(isLeaked ? '--now' : ' at the latest');
    // It serves until there is another one, which is still ordered.
    expect(row()).toMatchObject({ certificate_id: used, job: { error_code: expect.anything() } });
    if (!isLeaked) expect(pending()).toEqual([]);
  });

  it('is not revoked when the CA of the gateway has issued it: that one cannot revoke', async () => {
    const id = await reserve('local.example.com');
    const { request, grant } = await order(0);
    await grant();
    await expect.poll(async () => (await read(id)).certificate).not.toBeNull();
    const row = server.store.reservedDomains.get(id);
    const issued = server.store.tlsCertificates.get(String(row?.certificate_id))?.certificate_pem;
    // It is its own issuer here.
    const revocation = revokeCertificate(server.store, request.domain, 'superseded', { caPem: String(issued) });
    await expect(revocation).rejects.toThrow("was issued by the gateway's own CA, which cannot revoke");
    expect(server.store.reservedDomains.get(id)?.job).toBeNull();
  });

  it('is neither ordered nor logged without end while the database cannot be written', async () => {
    await reserve();
    const { grant } = await order(0);
    const { database } = server.store;
    const write = database.write;
    database.write = () => Promise.reject(new Error('disk full'));
    try {
      await grant();
      await expect.poll(() => logged('certificate job failed')).toBe(1);
      for (let turns = 0; turns < 20; turns++) {
        renewal.wake();
        await nextTurn();
      }
      expect(issuer.orders).toHaveLength(1);
      expect(logged('certificate job failed')).toBe(1);
      // What was not recorded is ordered after a restart, but not before it can be recorded.
      await renewal.stop();
      await startRenewal();
      await expect.poll(() => logged('certificate job failed')).toBe(1);
      expect(issuer.orders).toHaveLength(0);
    } finally {
      database.write = write;
    }
  });

  it('is renewed when the CA asks for it, an hour after it was issued at the earliest, and says which one it replaces', async () => {
    const id = await reserve();
    await (await order(0)).grant();
    await expect.poll(async () => (await read(id)).certificate).not.toBeNull();
    const status = async () => (await read(id)).certificate_management_status as { renews_at: string };
    issuer.advice = { start: now - DAY, end: now - 2000, why: 'https://ca.example/incident', askAgainS: 60 };
    advanceTo('2026-05-01T12:59:00Z');
    expect((await status()).renews_at).toBe('2026-06-30T00:00:00Z');
    advanceTo('2026-05-01T13:01:00Z');
    const { request, grant } = await order(1);
    expect(request.replaces).toContain('BEGIN CERTIFICATE');
    issuer.advice = {
      start: Date.parse('2026-07-27T00:00:00Z'),
      end: Date.parse('2027-07-28T00:00:00Z'),
      why: null,
      askAgainS: null,
    };
    await grant();
    await expect.poll(async () => (await status()).renews_at).toBe('2026-06-30T00:00:00Z');
    // A window that ends after the certificate does not leave the name without one.
    advanceTo('2026-05-01T14:05:00Z');
    await expect.poll(async () => (await status()).renews_at.slice(0, 10)).toBe('2026-07-08');
    expect(issuer.orders).toHaveLength(2);
  });

  it('continues the order of an earlier process, with its key', async () => {
    await reserve();
    const { request, fail } = await order(0);
    const kept = { authority: 'https://ca.example/dir', url: 'https://ca.example/order/1', privateKeyPem: 'the key' };
    await request.keep?.(kept);
    await renewal.stop();
    fail(new Error('aborted'));
    expect(JSON.stringify(server.store.reservedDomains.managed())).not.toContain('the key');
    await startRenewal();
    expect((await order(0)).request.begun).toEqual(kept);
  });

  it('is ordered again after a restart, from the stored job', async () => {
    const id = await reserve();
    const { signal } = await order(0);
    await renewal.stop();
    expect(signal.aborted).toBe(true);
    expect(await read(id)).toMatchObject({ certificate_management_status: { provisioning_job: { error_code: null } } });
    await startRenewal();
    await (await order(0)).grant();
    await expect.poll(async () => (await read(id)).certificate).not.toBeNull();
  });
});

describe('the certificates of many policies', () => {
  it('are issued four at a time', async () => {
    const ids = await Promise.all(Array.from({ length: 10 }, (_, i) => reserve(`d${i}.example.com`)));
    await order(3);
    for (let done = 0; done < 10; done += 1) {
      expect(issuer.orders.length).toBeLessThanOrEqual(done + 4);
      await (await order(done)).grant();
    }
    for (const id of ids) await expect.poll(async () => (await read(id)).certificate).not.toBeNull();
  });
});

it('private keys are unreadable without the encryption key', async () => {
  const id = await reserve();
  await (await order(0)).grant();
  await expect.poll(async () => (await read(id)).certificate).not.toBeNull();
  const { SecretsBox } = await import('../../../src/lib/secrets-box.ts');
  const other = openStore(`${server.folder}/gateway.db`, new SecretsBox(Buffer.alloc(32)));
  const { certificate } = await read(id);
  expect(() => other.tlsCertificates.keyPair((certificate as { id: string }).id)).toThrow(/encryption key/);
  other.database.close();
});
