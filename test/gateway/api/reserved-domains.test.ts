import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { issueCertificate } from '../../support/certificates.ts';
import {
  type Answer,
  BASE_DOMAIN,
  BASE_URL,
  type ManagementServer,
  startManagementServer,
} from '../../support/management-server.ts';

const POLICY = { authority: 'letsencrypt', private_key_type: 'ecdsa' };
const IN_PROGRESS = {
  renews_at: null,
  provisioning_job: {
    error_code: null,
    msg: 'Managed certificate provisioning in progress.',
    started_at: expect.stringMatching(/Z$/),
    retries_at: null,
  },
};

let server: ManagementServer;
let certificateId: string;
beforeAll(async () => {
  server = await startManagementServer();
  const { certificatePem, privateKeyPem } = await issueCertificate({ subject: 'CN=x', names: ['*.example.com'] });
  const upload = { certificate_pem: certificatePem, private_key_pem: privateKeyPem };
  certificateId = (await server.call('POST', '/tls_certificates', upload)).id;
});
afterAll(() => server.close());

let counter = 0;
function freshName(): string {
  counter += 1;
  return `d${counter}.example.com`;
}
function create(body: Record<string, unknown> = {}): Promise<Answer> {
  return server.call('POST', '/reserved_domains', { domain: freshName(), ...body });
}
function update(id: string, body: unknown): Promise<Answer> {
  return server.call('PATCH', `/reserved_domains/${id}`, body);
}
function refusal(code: number) {
  return { status: 400, body: { error_code: `ERR_NGROK_${code}`, status_code: 400 } };
}
/** Attaches an automatic certificate to a domain, as the renewal does. */
async function issueFor(id: string): Promise<string> {
  const { store } = server;
  const { certificatePem, privateKeyPem } = await issueCertificate({ subject: 'CN=auto' });
  const upload = { certificate_pem: certificatePem, private_key_pem: privateKeyPem };
  const certificate = await server.call('POST', '/tls_certificates', upload);
  await store.database.write(() => {
    const row = store.tlsCertificates.get(certificate.id);
    const domain = store.reservedDomains.get(id);
    if (!row || !domain) throw new Error('missing');
    store.tlsCertificates.update({ ...row, issued_at: '2026-01-01T00:00:00Z' });
    const renews_at = '2026-03-02T00:00:00Z';
    store.reservedDomains.update({ ...domain, certificate_id: row.id, job: null, renews_at, due_at: renews_at });
  });
  return certificate.id;
}

describe('POST /reserved_domains', () => {
  it('answers every member, unset ones as null, without description and metadata', async () => {
    const { status, body, id } = await create({ domain: 'App.Example.com.' });
    expect(status).toBe(201);
    expect(body).toEqual({
      id: expect.stringMatching(/^rd_[0-9A-Za-z]{27}$/),
      uri: `${BASE_URL}/reserved_domains/${id}`,
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/),
      domain: 'app.example.com',
      region: '',
      cname_target: expect.stringMatching(/^[a-z0-9]{17}\.[a-z0-9]{17}\.cname\.gateway\.test$/),
      certificate: null,
      certificate_management_policy: null,
      certificate_management_status: null,
      acme_challenge_cname_target: null,
      http_endpoint_configuration: null,
      https_endpoint_configuration: null,
      error_redirect_url: null,
    });
  });

  it('keeps description and metadata unchanged, even when empty', async () => {
    const { body } = await create({ description: '', metadata: '{"a":1}' });
    expect(body).toMatchObject({ description: '', metadata: '{"a":1}' });
  });

  it.each(['', 'au', 'eu', 'ap', 'us', 'jp', 'in', 'sa'])(
    'accepts region %j and answers an empty one',
    async (region) => {
      const answer = await create({ region });
      expect([answer.status, answer.body.region]).toEqual([201, '']);
    },
  );

  it('starts a provisioning job for a policy', async () => {
    const before = server.woken();
    const { body } = await create({ certificate_management_policy: { authority: 'letsencrypt' } });
    expect(body).toMatchObject({
      certificate: null,
      certificate_management_policy: { authority: 'letsencrypt', private_key_type: 'rsa' },
      certificate_management_status: IN_PROGRESS,
    });
    expect(server.woken()).toBe(before + 1);
  });

  it('attaches an uploaded certificate', async () => {
    const { body } = await create({ certificate_id: certificateId });
    expect(body).toMatchObject({
      certificate: { id: certificateId, uri: `${BASE_URL}/tls_certificates/${certificateId}` },
      certificate_management_policy: null,
    });
  });

  it.each(['app.example.net', 'deep.app.example.com'])('refuses a certificate that is not for %s', async (domain) => {
    const answer = await create({ domain, certificate_id: certificateId });
    expect(answer).toMatchObject(refusal(1965));
    expect(answer.body.msg).toContain(`refuse the certificate for ${domain}: it is for *.example.com`);
  });

  it('answers stable DNS targets for a wildcard, even after it is deleted and created again', async () => {
    const { body, id } = await create({ domain: '*.dev.example.com' });
    expect(body.acme_challenge_cname_target).toMatch(/^[a-z0-9]{12}\.acme\.gateway\.test$/);
    await server.call('DELETE', `/reserved_domains/${id}`);
    const again = await create({ domain: '*.dev.example.com' });
    expect(again.id).not.toBe(id);
    expect(again.body).toMatchObject({
      cname_target: body.cname_target,
      acme_challenge_cname_target: body.acme_challenge_cname_target,
    });
  });

  it('accepts a name that a reserved wildcard covers', async () => {
    await create({ domain: '*.both.example.com' });
    expect((await create({ domain: 'a.both.example.com' })).status).toBe(201);
  });

  it('refuses policies and certificates for names below the gateway’s own domain', async () => {
    const owned = await create({ domain: `*.site.${BASE_DOMAIN}` });
    expect(owned.body).toMatchObject({ cname_target: null, acme_challenge_cname_target: null });
    expect(await create({ domain: `a.${BASE_DOMAIN}`, certificate_management_policy: POLICY })).toMatchObject(
      refusal(439),
    );
    expect(await create({ domain: `a.${BASE_DOMAIN}`, certificate_id: certificateId })).toMatchObject(refusal(440));
    expect(await update(owned.id, { certificate_management_policy: POLICY })).toMatchObject(refusal(439));
    expect(await update(owned.id, { certificate_id: certificateId })).toMatchObject(refusal(440));
    for (const domain of [BASE_DOMAIN, `x.cname.${BASE_DOMAIN}`, `acme.${BASE_DOMAIN}`]) {
      expect(await create({ domain })).toMatchObject(refusal(450));
    }
  });

  it.each([
    [{ domain: undefined }, 448],
    [{ domain: 'localhost' }, 448],
    [{ domain: 7 }, 448],
    [{ domain: 'https://a.example.com' }, 406],
    [{ domain: 'a.example.com:443' }, 406],
    [{ domain: 'a b.example.com' }, 406],
    [{ domain: 'a.*.example.com' }, 402],
    [{ domain: 'a*.example.com' }, 403],
    [{ domain: '*.com' }, 416],
    [{ domain: '-a.example.com' }, 407],
    [{ domain: 'a-.example.com' }, 408],
    [{ domain: 'a..example.com' }, 409],
    [{ domain: 'ab--c.example.com' }, 410],
    [{ domain: '10.0.0.1' }, 411],
    [{ domain: 'a_b.example.com' }, 438],
    [{ domain: `${'a'.repeat(64)}.example.com` }, 513],
    [{ domain: `${'a.'.repeat(125)}example.com` }, 514],
    [{ region: 'mars' }, 400],
    [{ metadata: 'ü'.repeat(2049) }, 421],
    [{ description: 'd'.repeat(4097) }, 420],
    [{ certificate_management_policy: { authority: 'zerossl' } }, 435],
    [{ certificate_management_policy: { authority: 'letsencrypt', private_key_type: 'dsa' } }, 1909],
    [{ certificate_management_policy: { authority: 'letsencrypt', more: 1 } }, 214],
    [{ certificate_management_policy: 'letsencrypt' }, 215],
    [{ certificate_id: 'cert_unknown', certificate_management_policy: POLICY }, 434],
    [{ certificate_id: 'cert_unknown' }, 1965],
    [{ certificate_id: 'rd_1' }, 227],
    [{ error_redirect_url: 'https://x' }, 214],
    [{ error_redirect_url: null }, 214],
    [{ '': null }, 214],
    [{ name: 'other.example.com' }, 215],
    [{ domain: undefined, name: '10.0.0.1' }, 411],
    [{ resolves_to: [{ value: 'eu' }] }, 215],
    [{ id: 'rd_1' }, 214],
  ])('refuses %j with ERR_NGROK_%i', async (body, code) => {
    expect(await create(body)).toMatchObject(refusal(code));
  });

  // ngrok's Terraform provider sends them; its documentation names a domain by `name`.
  it('accepts name in place of domain, and empty members', async () => {
    const name = freshName();
    const sent = { name, region: '', description: '', metadata: '', certificate_id: '', resolves_to: [] };
    const { status, body } = await server.call('POST', '/reserved_domains', sent);
    expect(status).toBe(201);
    expect(body).toMatchObject({ domain: name, certificate: null });
  });

  it('accepts 4096 bytes of metadata', async () => {
    expect((await create({ metadata: 'ü'.repeat(2048) })).status).toBe(201);
  });

  it('refuses a reserved name in any spelling', async () => {
    await create({ domain: 'taken.example.com' });
    expect(await create({ domain: 'TAKEN.example.com.' })).toMatchObject(refusal(413));
    // Below the gateway, where the policy would be refused as well.
    await create({ domain: `taken.${BASE_DOMAIN}` });
    const again = { domain: `taken.${BASE_DOMAIN}`, certificate_management_policy: POLICY };
    expect(await create(again)).toMatchObject(refusal(413));
  });
});

describe('PATCH /reserved_domains/{id}', () => {
  it('changes only the members it sends', async () => {
    const { id, body } = await create({ description: 'before', metadata: 'm' });
    const changed = await update(id, { description: 'after' });
    expect(changed.status).toBe(200);
    expect(changed.body).toEqual({ ...body, description: 'after' });
    expect((await update(id, { id, description: null })).body).toEqual(changed.body);
    expect((await update(id, {})).body).toEqual(changed.body);
    expect((await server.call('GET', `/reserved_domains/${id}`)).body).toEqual(changed.body);
  });

  // ngrok's Python client sends it with every update.
  it('accepts resolves_to without a value only', async () => {
    const { id, body } = await create();
    for (const resolves_to of [null, []]) expect((await update(id, { resolves_to })).body).toEqual(body);
    expect(await update(id, { resolves_to: [{ value: 'eu' }] })).toMatchObject(refusal(215));
  });

  // ngrok's Terraform provider sends both with every update.
  it('accepts an empty certificate_id, and the automatic one beside its policy', async () => {
    const plain = await create();
    const changed = await update(plain.id, { description: 'b', metadata: '', certificate_id: '' });
    expect(changed).toMatchObject({ status: 200, body: { description: 'b', certificate: null } });
    const { id } = await create({ certificate_management_policy: POLICY });
    const automatic = await issueFor(id);
    const sent = { description: 'c', certificate_id: automatic, certificate_management_policy: POLICY };
    const expected = { description: 'c', certificate: { id: automatic }, certificate_management_policy: POLICY };
    expect(await update(id, sent)).toMatchObject({ status: 200, body: expected });
  });

  it.each(['domain', 'region', 'cname_target', 'uri', 'created_at'])('refuses to change %s', async (member) => {
    const { id } = await create();
    expect(await update(id, { [member]: 'x' })).toMatchObject(refusal(214));
  });

  it('replaces an uploaded certificate by a policy and starts a job', async () => {
    const { id } = await create({ certificate_id: certificateId });
    const before = server.woken();
    expect((await update(id, { certificate_management_policy: POLICY })).body).toMatchObject({
      certificate: null,
      certificate_management_policy: POLICY,
      certificate_management_status: IN_PROGRESS,
    });
    expect(server.woken()).toBe(before + 1);
  });

  it('replaces a policy by a certificate and deletes the automatic one', async () => {
    const { id } = await create({ certificate_management_policy: POLICY });
    const automatic = await issueFor(id);
    expect((await update(id, { certificate_id: certificateId })).body).toMatchObject({
      certificate: { id: certificateId },
      certificate_management_policy: null,
      certificate_management_status: null,
    });
    expect((await server.call('GET', `/tls_certificates/${automatic}`)).status).toBe(404);
  });

  it('refuses the automatic certificate of another domain', async () => {
    const { id } = await create({ certificate_management_policy: POLICY });
    const automatic = await issueFor(id);
    expect(await create({ certificate_id: automatic })).toMatchObject(refusal(1965));
  });

  it('refuses a certificate together with a policy and changes nothing', async () => {
    const { id, body } = await create();
    const both = { description: 'x', certificate_id: certificateId, certificate_management_policy: POLICY };
    expect(await update(id, both)).toMatchObject(refusal(434));
    expect((await server.call('GET', `/reserved_domains/${id}`)).body).toEqual(body);
  });

  it.each(['none', 'uploaded', 'automatic'])(
    'ignores an empty id and the present one: certificate %s',
    async (kind) => {
      const { id } = await create({
        ...(kind === 'uploaded' && { certificate_id: certificateId }),
        ...(kind === 'automatic' && { certificate_management_policy: POLICY }),
      });
      const present = kind === 'automatic' ? await issueFor(id) : kind === 'uploaded' ? certificateId : '';
      const before = await server.call('GET', `/reserved_domains/${id}`);
      const policy = kind === 'automatic' && { certificate_management_policy: POLICY };
      for (const certificate_id of ['', present]) {
        const sent = { description: 'b', metadata: '', certificate_id, http_endpoint_configuration_id: '', ...policy };
        const { status, body } = await update(id, sent);
        expect(status).toBe(200);
        expect(body).toEqual({ ...before.body, description: 'b', metadata: '' });
      }
    },
  );

  it('restarts the job for the same policy only if it is failing', async () => {
    const { id } = await create({ certificate_management_policy: POLICY });
    const { store } = server;
    const setJob = (error_code: 'DNS_ERROR' | null) =>
      store.database.write(() => {
        const row = store.reservedDomains.get(id);
        if (!row) throw new Error('missing');
        const job = { error_code, msg: 'waiting', started_at: '2026-01-01T00:00:00Z', retries_at: null, attempts: 3 };
        store.reservedDomains.update({ ...row, job });
      });
    await setJob(null);
    const untouched = await update(id, { certificate_management_policy: POLICY });
    expect(untouched.body).toMatchObject({ certificate_management_status: { provisioning_job: { msg: 'waiting' } } });
    await setJob('DNS_ERROR');
    const restarted = await update(id, { certificate_management_policy: POLICY });
    expect(restarted.body).toMatchObject({ certificate_management_status: IN_PROGRESS });
  });

  it('keeps the certificate until one with the new key type is issued', async () => {
    const { id } = await create({ certificate_management_policy: POLICY });
    const automatic = await issueFor(id);
    const { body } = await update(id, { certificate_management_policy: { ...POLICY, private_key_type: 'rsa' } });
    expect(body).toMatchObject({
      certificate: { id: automatic },
      certificate_management_status: { renews_at: '2026-03-02T00:00:00Z', provisioning_job: { error_code: null } },
    });
  });

  it('links endpoint configurations of the matching type', async () => {
    const http = await server.call('POST', '/endpoint_configurations', { type: 'http' });
    const https = await server.call('POST', '/endpoint_configurations', { type: 'https' });
    const { id } = await create();
    const linked = await update(id, {
      http_endpoint_configuration_id: http.id,
      https_endpoint_configuration_id: https.id,
    });
    expect(linked.body).toMatchObject({
      http_endpoint_configuration: { id: http.id, uri: `${BASE_URL}/endpoint_configurations/${http.id}` },
      https_endpoint_configuration: { id: https.id },
    });
    expect(await update(id, { http_endpoint_configuration_id: https.id })).toMatchObject(refusal(428));
    expect(await update(id, { http_endpoint_configuration_id: 'ec_unknown' })).toMatchObject(refusal(1600));
    expect(await server.call('DELETE', `/endpoint_configurations/${http.id}`)).toMatchObject(refusal(1619));
    for (const type of ['http', 'https']) {
      const path = `/reserved_domains/${id}/${type}_endpoint_configuration`;
      expect((await server.call('DELETE', path)).status).toBe(204);
    }
    expect((await server.call('GET', `/reserved_domains/${id}`)).body).toMatchObject({
      http_endpoint_configuration: null,
      https_endpoint_configuration: null,
    });
    expect((await server.call('DELETE', `/endpoint_configurations/${http.id}`)).status).toBe(204);
  });
});

describe('DELETE /reserved_domains/{id}/…', () => {
  const detach = (id: string, what: string) => server.call('DELETE', `/reserved_domains/${id}/${what}`);

  it('detaches an uploaded certificate, repeatedly without error', async () => {
    const { id } = await create({ certificate_id: certificateId });
    for (let i = 0; i < 2; i += 1) expect((await detach(id, 'certificate')).status).toBe(204);
    expect((await server.call('GET', `/reserved_domains/${id}`)).body.certificate).toBeNull();
  });

  it('refuses to detach the certificate of a policy', async () => {
    const { id } = await create({ certificate_management_policy: POLICY });
    expect((await detach(id, 'certificate')).status).toBe(204);
    await issueFor(id);
    expect(await detach(id, 'certificate')).toMatchObject(refusal(436));
  });

  it('detaches a policy with its status and certificate', async () => {
    const { id } = await create({ certificate_management_policy: POLICY });
    const automatic = await issueFor(id);
    expect(await server.call('DELETE', `/tls_certificates/${automatic}`)).toMatchObject(refusal(1966));
    for (let i = 0; i < 2; i += 1) expect((await detach(id, 'certificate_management_policy')).status).toBe(204);
    expect((await server.call('GET', `/reserved_domains/${id}`)).body).toMatchObject({
      certificate: null,
      certificate_management_policy: null,
      certificate_management_status: null,
    });
    expect((await server.call('GET', `/tls_certificates/${automatic}`)).status).toBe(404);
  });

  it('keeps an uploaded certificate when a policy is detached', async () => {
    const { id } = await create({ certificate_id: certificateId });
    await detach(id, 'certificate_management_policy');
    expect((await server.call('GET', `/reserved_domains/${id}`)).body).toMatchObject({
      certificate: { id: certificateId },
    });
  });

  it('answers 404 for an unknown domain', async () => {
    for (const what of ['certificate', 'certificate_management_policy']) {
      expect((await detach('rd_unknown', what)).status).toBe(404);
    }
  });
});

describe('DELETE /reserved_domains/{id}', () => {
  it('frees the name and takes its endpoints offline', async () => {
    const { id, body } = await create();
    expect((await server.call('DELETE', `/reserved_domains/${id}`)).status).toBe(204);
    expect(server.revoked.at(-1)).toEqual({ domain: body.domain });
    expect((await server.call('DELETE', `/reserved_domains/${id}`)).status).toBe(404);
    expect((await create({ domain: body.domain })).status).toBe(201);
  });

  it('is refused while a TLS edge uses the domain or a name that only its wildcard covers', async () => {
    const wildcard = await create({ domain: '*.edge.example.com' });
    const exact = await create({ domain: 'a.edge.example.com' });
    const hostports = ['a.edge.example.com:443', 'b.edge.example.com:443'];
    const edge = await server.call('POST', '/edges/tls', { hostports });
    for (const { id } of [wildcard, exact]) {
      expect(await server.call('DELETE', `/reserved_domains/${id}`)).toMatchObject(refusal(446));
    }
    await server.call('PATCH', `/edges/tls/${edge.id}`, { hostports: hostports.slice(0, 1) });
    expect((await server.call('DELETE', `/reserved_domains/${wildcard.id}`)).status).toBe(204);
    await server.call('DELETE', `/edges/tls/${edge.id}`);
    expect((await server.call('DELETE', `/reserved_domains/${exact.id}`)).status).toBe(204);
  });

  it('keeps an uploaded certificate, which cannot be deleted while a domain uses it', async () => {
    const { certificatePem, privateKeyPem } = await issueCertificate({ subject: 'CN=used', names: ['*.example.com'] });
    const upload = { certificate_pem: certificatePem, private_key_pem: privateKeyPem };
    const certificate = await server.call('POST', '/tls_certificates', upload);
    const { id } = await create({ certificate_id: certificate.id });
    expect((await server.call('DELETE', `/tls_certificates/${certificate.id}`)).status).toBe(400);
    await server.call('DELETE', `/reserved_domains/${id}`);
    expect((await server.call('DELETE', `/tls_certificates/${certificate.id}`)).status).toBe(204);
  });
});
