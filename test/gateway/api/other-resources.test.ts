import { generateKeyPairSync } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Issued, issueCertificate } from '../../support/certificates.ts';
import { COSTLY_KEYS, madeUpRsa, OUT_OF_RANGE, pemOf, spkiOf } from '../../support/costly-keys.ts';
import { BASE_URL, type ManagementServer, startManagementServer } from '../../support/management-server.ts';
import { ENDPOINT, LABELLED_TUNNEL, SESSION, TUNNEL } from '../../support/online-agent.ts';

let server: ManagementServer;
const commands: string[] = [];
beforeAll(async () => {
  server = await startManagementServer({
    live: {
      sessions: () => [SESSION],
      tunnels: () => [TUNNEL, LABELLED_TUNNEL],
      endpoints: () => [ENDPOINT],
      command: (id, command) => {
        commands.push(`${command} ${id}`);
        return id === SESSION.id;
      },
    },
  });
});
afterAll(() => server.close());

function refusal(code: number, status = 400) {
  return { status, body: { error_code: `ERR_NGROK_${code}`, status_code: status } };
}

describe('credentials', () => {
  it('answer their token only when created', async () => {
    const bot = await server.call('POST', '/bot_users');
    const acl = ['bind:*.dev.example.com'];
    const { status, body, id } = await server.call('POST', '/credentials', { description: 'd', acl, owner_id: bot.id });
    expect(status).toBe(201);
    expect(body).toEqual({
      id: expect.stringMatching(/^cr_/),
      uri: `${BASE_URL}/credentials/${id}`,
      created_at: expect.any(String),
      description: 'd',
      metadata: null,
      acl,
      owner_id: bot.id,
      token: expect.stringMatching(new RegExp(`^${id.slice(3)}_[1-9A-Za-z]{21,22}$`)),
    });
    expect((await server.call('GET', `/credentials/${id}`)).body).toEqual({ ...body, token: null });
    expect((await server.call('GET', '/credentials?limit=1')).body).toMatchObject({ credentials: [{ token: null }] });
    const changed = await server.call('PATCH', `/credentials/${id}`, { acl: [] });
    expect(changed.body).toEqual({ ...body, acl: [], token: null });
    expect(JSON.stringify(server.store.credentials.get(id))).not.toContain(String(body.token).split('_')[1]);
  });

  it('refuse unknown and inactive owners', async () => {
    const inactive = await server.call('POST', '/bot_users', { active: false });
    for (const path of ['/credentials', '/api_keys']) {
      expect(await server.call('POST', path, { owner_id: inactive.id })).toMatchObject(refusal(636));
      expect(await server.call('POST', path, { owner_id: 'bot_unknown' })).toMatchObject(refusal(634));
      expect(await server.call('POST', path, { owner_id: 'rd_1' })).toMatchObject(refusal(243));
    }
    expect(await server.call('POST', '/credentials', { acl: ['bind:a*.x'] })).toMatchObject(refusal(600));
  });
});

describe('API keys', () => {
  it('are created and deleted over the API, even the one in use', async () => {
    const { id, body } = await server.call('POST', '/api_keys', { description: 'ci' });
    expect((await server.call('GET', '/api_keys?limit=1')).body).toMatchObject({ keys: [{ id, token: null }] });
    const headers = { Authorization: `Bearer ${body.token}` };
    expect((await server.call('PATCH', `/api_keys/${id}`, { metadata: 'm' }, headers)).body.metadata).toBe('m');
    expect((await server.call('DELETE', `/api_keys/${id}`, undefined, headers)).status).toBe(204);
    expect(await server.call('GET', '/api_keys', undefined, headers)).toMatchObject(refusal(203, 403));
  });
});

describe('backends', () => {
  it('keep their response, with header names in lower case', async () => {
    const sent = { body: 'short and stout', headers: { 'Content-Type': 'text/plain' }, status_code: 418 };
    const { id, body } = await server.call('POST', '/backends/http_response', sent);
    expect(body).toMatchObject({ ...sent, headers: { 'content-type': 'text/plain' }, metadata: null });
    expect((await server.call('PATCH', `/backends/http_response/${id}`, { body: '' })).body).toEqual({
      ...body,
      body: '',
    });
    expect((await server.call('POST', '/backends/http_response')).body).toMatchObject({
      body: '',
      headers: null,
      status_code: 200,
    });
    expect((await server.call('GET', '/backends/http_response?limit=1')).body.backends).toHaveLength(1);
    expect((await server.call('DELETE', `/backends/http_response/${id}`)).status).toBe(204);
    expect(await server.call('GET', `/backends/http_response/${id}`)).toMatchObject(refusal(6514, 404));
  });

  it('of tunnel groups list the online tunnels with all their labels', async () => {
    const create = (labels: object) => server.call('POST', '/backends/tunnel_group', { labels });
    const { body } = await create({ app: 'web' });
    expect(body.tunnels).toEqual([{ id: LABELLED_TUNNEL.id, uri: `${BASE_URL}/tunnels/${LABELLED_TUNNEL.id}` }]);
    expect((await create({ app: 'web', site: 'b' })).body.tunnels).toEqual([]);
    expect((await create({})).body.tunnels).toEqual([]);
  });
});

describe('IP policies', () => {
  it('have rules with unique ranges, and delete them with the policy', async () => {
    const policy = await server.call('POST', '/ip_policies', { description: 'office' });
    const rule = { cidr: '203.0.113.0/24', action: 'allow', ip_policy_id: policy.id };
    const { id, body } = await server.call('POST', '/ip_policy_rules', rule);
    expect(body).toMatchObject({
      cidr: rule.cidr,
      action: 'allow',
      ip_policy: { id: policy.id, uri: `${BASE_URL}/ip_policies/${policy.id}` },
    });
    expect(await server.call('POST', '/ip_policy_rules', rule)).toMatchObject(refusal(1408));
    const other = await server.call('POST', '/ip_policy_rules', { ...rule, cidr: '198.51.100.0/24' });
    expect(await server.call('PATCH', `/ip_policy_rules/${other.id}`, { cidr: rule.cidr })).toMatchObject(
      refusal(1408),
    );
    expect(await server.call('PATCH', `/ip_policy_rules/${id}`, { action: 'deny' })).toMatchObject(refusal(214));
    expect((await server.call('DELETE', `/ip_policies/${policy.id}`)).status).toBe(204);
    expect(await server.call('GET', `/ip_policy_rules/${id}`)).toMatchObject(refusal(1404, 404));
    expect(await server.call('POST', '/ip_policy_rules', rule)).toMatchObject(refusal(1402));
  });
});

describe('certificates', () => {
  let ca: Issued;
  let leaf: Issued;
  beforeAll(async () => {
    ca = await issueCertificate({ subject: 'CN=Device CA,O=Acme', ca: true });
    const subject = 'CN=cam.example.com,O=Acme,OU=Cameras,L=Bern,ST=BE,C=CH';
    leaf = await issueCertificate({
      subject,
      names: ['cam.example.com', '*.cam.example.com', '10.0.0.1'],
      issuer: ca,
    });
  });
  const upload = (certificate_pem: unknown, private_key_pem: unknown) =>
    server.call('POST', '/tls_certificates', { certificate_pem, private_key_pem });

  it('answer their facts and never the private key', async () => {
    const chain = leaf.certificatePem + ca.certificatePem;
    const { status, body, id } = await upload(chain, leaf.privateKeyPem);
    expect(status).toBe(201);
    expect(body).toEqual({
      id: expect.stringMatching(/^cert_/),
      uri: `${BASE_URL}/tls_certificates/${id}`,
      created_at: expect.any(String),
      description: null,
      metadata: null,
      certificate_pem: chain,
      subject_common_name: 'cam.example.com',
      issuer_common_name: 'Device CA',
      subject_alternative_names: { dns_names: ['cam.example.com', '*.cam.example.com'], ips: ['10.0.0.1'] },
      issued_at: null,
      not_before: '2026-01-01T00:00:00Z',
      not_after: '2036-01-01T00:00:00Z',
      key_usages: ['digital_signature'],
      extended_key_usages: ['server_auth', 'client_auth'],
      private_key_type: 'ecdsa',
      serial_number: '0a1b2c',
      subject_organization: 'Acme',
      subject_organizational_unit: 'Cameras',
      subject_locality: 'Bern',
      subject_province: 'BE',
      subject_country: 'CH',
    });
    expect((await server.call('PATCH', `/tls_certificates/${id}`, { description: 'x' })).body.description).toBe('x');
    expect(server.store.tlsCertificates.keyPair(id)?.privateKeyPem).toBe(leaf.privateKeyPem);
  });

  it('are refused with the code of their problem', async () => {
    const { certificatePem, privateKeyPem } = leaf;
    const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });
    const pkcs8 = { format: 'pem', type: 'pkcs8' } as const;
    const encrypted = rsa.privateKey.export({ ...pkcs8, cipher: 'aes-256-cbc', passphrase: 'x' });
    const cases: [unknown, unknown, number][] = [
      ['', privateKeyPem, 1922],
      [undefined, privateKeyPem, 1922],
      ['nonsense', privateKeyPem, 1900],
      [certificatePem.replaceAll(/[A-Za-z]{20}/g, 'AAAA'), privateKeyPem, 1900],
      [certificatePem.slice(0, -20), privateKeyPem, 1900],
      [certificatePem, '', 1901],
      [certificatePem, encrypted, 1902],
      [certificatePem, 'nonsense', 1903],
      [certificatePem, '-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----', 1903],
      [certificatePem, rsa.privateKey.export(pkcs8), 1923],
      [certificatePem, certificatePem, 1924],
      [privateKeyPem, privateKeyPem, 1925],
      [ca.certificatePem + certificatePem, ca.privateKeyPem, 1926],
    ];
    for (const [pem, key, code] of cases) expect(await upload(pem, key)).toMatchObject(refusal(code));
  });

  it('are refused when they have unusual keys, wherever in the chain', async () => {
    const costly = madeUpRsa(16_384);
    const unusual = await issueCertificate({ subject: 'CN=a', publicKey: spkiOf(costly) });
    expect(await upload(unusual.certificatePem, pemOf(costly))).toMatchObject({
      ...refusal(1903),
      body: { msg: expect.stringContaining('private_key_pem: is an RSA key with 16384 bits; use RSA with 2048') },
    });
    expect(await upload(leaf.certificatePem, OUT_OF_RANGE)).toMatchObject(refusal(1903));
    expect(await upload(`${leaf.certificatePem}\n${unusual.certificatePem}`, leaf.privateKeyPem)).toMatchObject({
      ...refusal(1900),
      body: { msg: expect.stringContaining('certificate_pem: certificate 2 has an RSA key with 16384 bits') },
    });
    for (const [, make] of COSTLY_KEYS) {
      const authority = await issueCertificate({ subject: 'CN=CA', ca: true, publicKey: spkiOf(make()) });
      const { certificatePem: ca_pem } = authority;
      expect(await server.call('POST', '/certificate_authorities', { ca_pem })).toMatchObject(refusal(1920));
    }
  });

  it('of certificate authorities must be exactly one CA certificate', async () => {
    const create = (ca_pem: unknown) => server.call('POST', '/certificate_authorities', { ca_pem });
    const { body } = await create(ca.certificatePem);
    expect(body).toMatchObject({
      ca_pem: ca.certificatePem,
      subject_common_name: 'Device CA',
      not_before: '2026-01-01T00:00:00Z',
      not_after: '2036-01-01T00:00:00Z',
      key_usages: ['cert_sign', 'crl_sign'],
      extended_key_usages: [],
    });
    const withHeader = ca.certificatePem.replace('-----\n', '-----\nA: b\n\n');
    const cases: [unknown, number][] = [
      ['', 1919],
      [undefined, 1919],
      ['nonsense', 1920],
      [leaf.privateKeyPem, 1911],
      [withHeader, 1910],
      [`${ca.certificatePem}${' '.repeat(65_536)}`, 1921],
      [ca.certificatePem + ca.certificatePem, 1912],
      [leaf.certificatePem, 1913],
    ];
    for (const [pem, code] of cases) expect(await create(pem)).toMatchObject(refusal(code));
  });

  it('accept private keys in SEC 1 form', async () => {
    const { createPrivateKey } = await import('node:crypto');
    const sec1 = createPrivateKey(leaf.privateKeyPem).export({ format: 'pem', type: 'sec1' });
    expect((await upload(leaf.certificatePem, sec1)).status).toBe(201);
  });
});

describe('endpoints, tunnels and sessions', () => {
  it('are listed newest first, with references', async () => {
    const domain = await server.call('POST', '/reserved_domains', { domain: '*.dev.example.com' });
    const group = await server.call('POST', '/backends/tunnel_group', { labels: { site: 'a' } });
    const { body: tunnels } = await server.call('GET', '/tunnels');
    expect(tunnels.tunnels).toMatchObject([
      {
        id: LABELLED_TUNNEL.id,
        labels: LABELLED_TUNNEL.labels,
        backends: expect.arrayContaining([{ id: group.id, uri: group.body.uri }]),
      },
      {
        id: TUNNEL.id,
        public_url: TUNNEL.publicUrl,
        endpoint: { id: ENDPOINT.id },
        tunnel_session: { id: SESSION.id },
      },
    ]);
    expect((await server.call('GET', `/tunnels?before_id=${LABELLED_TUNNEL.id}`)).body.tunnels).toHaveLength(1);
    const { body: endpoint } = await server.call('GET', `/endpoints/${ENDPOINT.id}`);
    expect(endpoint).toMatchObject({
      type: 'ephemeral',
      hostport: 'a.dev.example.com:443',
      domain: { id: domain.id },
      tunnel: { id: TUNNEL.id },
      bindings: ['public'],
    });
    const { body: session } = await server.call('GET', `/tunnel_sessions/${SESSION.id}`);
    expect(session).toMatchObject({ agent_version: '1.7.0', credential: { id: 'cr_1' }, transport: 'ngrok/2' });
    expect((await server.call('GET', '/endpoints/ep_unknown')).status).toBe(404);
  });

  it('POST /tunnel_sessions/{id}/update refuses unknown members, and accepts the id', async () => {
    const before = commands.length;
    const path = `/tunnel_sessions/${SESSION.id}/update`;
    expect((await server.call('POST', path, { version: '2.0.0' })).status).toBe(400);
    expect(commands).toHaveLength(before);
    expect((await server.call('POST', path, { id: SESSION.id })).status).toBe(204);
    expect(commands).toHaveLength(before + 1);
  });
});
