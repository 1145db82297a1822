import { X509Certificate } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { compilePolicy, loadFor } from '../../../src/traffic-policy/engine.ts';
import type { PolicyTls } from '../../../src/traffic-policy/policy-subjects.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { checkPolicy } from '../../support/check-policy.ts';
import { madeUpRsa, pemOf, spkiOf } from '../../support/costly-keys.ts';
import { connectionFrom, ENDPOINT, requestFor } from '../fake-request.ts';
import { bodyOf, onConnect, respondWith } from './run-action.ts';

describe('terminate-tls', () => {
  it('sets the TLS versions, certificate and client verification for the edge', () => {
    const config = {
      min_version: '1.3',
      mutual_tls_certificate_authorities: 'ca_1',
      mutual_tls_verification_strategy: 'request',
    };
    const text = JSON.stringify({
      on_tcp_connect: [
        { expressions: ["conn.client_ip == '203.0.113.7'"], actions: [{ type: 'terminate-tls', config }] },
      ],
    });
    const policy = compilePolicy(text, 'tls', { ports: { hasCertificateAuthority: (id) => id === 'ca_1' } });
    expect(policy.terminatesTls).toBe(true);
    const connect = { connection: connectionFrom(), endpoint: ENDPOINT };
    expect(policy.onTcpConnect?.(connect)).toBeUndefined();
    expect(connect).toMatchObject({
      termination: {
        minVersion: '1.3',
        maxVersion: '1.3',
        certificate: null,
        clientAuthorities: ['ca_1'],
        clientVerification: 'request',
      },
    });
    const other = { connection: connectionFrom('192.0.2.1'), endpoint: ENDPOINT };
    policy.onTcpConnect?.(other);
    expect(other).not.toHaveProperty('termination');
  });

  const parties = ['subject', 'issuer'].flatMap((name) => [
    name,
    ...['common_name', 'country', 'locality', 'organization', 'organizational_unit'].map((part) => `${name}.${part}`),
    ...['postal_code', 'province', 'street_address'].map((part) => `${name}.${part}`),
  ]);
  const certificate = [
    ...parties,
    ...['san', 'san.dns_names', 'san.email_addresses', 'san.ip_addresses', 'san.uris'],
    ...['serial_number', 'signature_algorithm', 'validity.not_before', 'validity.not_after'],
    ...['extensions', 'extensions[0].id', 'extensions[0].critical', 'extensions[0].value'],
  ];
  const documented = [
    ...certificate.map((name) => `client.${name}`),
    ...certificate.map((name) => `server.${name}`),
    ...['cipher_suite', 'sni', 'version', 'warnings', 'error_code', 'error_message'],
  ];

  it('gives its 68 documented variables a value in expressions, texts and bucket keys', async () => {
    const presented = async (subject: string) => {
      const { certificatePem } = await issueCertificate({ subject, names: ['a.example.com'] });
      return new X509Certificate(certificatePem).raw;
    };
    const tls: PolicyTls = {
      ...{ sni: 'cam.example.com', version: '1.3', cipherSuite: 'TLS_AES_256_GCM_SHA384', alpn: 'h2', ja4: null },
      clientCertificate: await presented('CN=camera 7, O=Fleet'),
      serverCertificate: await presented('CN=cam.example.com'),
    };
    const connection = { ...connectionFrom(), tls };
    expect(documented).toHaveLength(68);
    const limit = { name: 'clients', algorithm: 'sliding_window', capacity: 9, rate: '60s' };
    const keys: Record<string, string> = {};
    for (const name of documented) {
      const own = `actions.ngrok.terminate_tls.${name}`;
      const expressions = [/^(?:warnings|error)/.test(name) ? `size(${own}) == 0` : `${own} == conn.tls.${name}`];
      const actions = [
        { type: 'rate-limit', config: { ...limit, bucket_key: [own] } },
        respondWith(`actions.ngrok.rate_limit.bucket_key + string(type(${own}) != null_type)`),
      ];
      const text = JSON.stringify({
        on_tcp_connect: [{ actions: [{ type: 'terminate-tls' }] }],
        on_http_request: [{ expressions, actions }],
      });
      await loadFor(text);
      const policy = compilePolicy(text, 'https');
      policy.onTcpConnect?.({ connection, endpoint: ENDPOINT });
      keys[name] = bodyOf(await policy.onHttpRequest?.(requestFor({ connection })));
    }
    expect(Object.entries(keys).filter(([, key]) => !key.endsWith(']true') || key.includes('null'))).toEqual([]);
    expect(keys).toMatchObject({ 'client.subject.common_name': '["camera 7"]true', version: '["1.3"]true' });
  });

  const denied = (...expressions: string[]) => ({ expressions, actions: [{ type: 'deny' }] });
  const inserted = (name: string) => ({
    actions: [{ type: 'log', config: { metadata: { seen: ['$', `{${name}}`].join('') } } }],
  });
  const terminate = { actions: [{ type: 'terminate-tls' }] };

  it.each<[string, 'https' | 'tls' | 'tcp', object[]]>([
    [
      'actions.ngrok.terminate_tls.client.subject',
      'https',
      [terminate, inserted('actions.ngrok.terminate_tls.client.subject')],
    ],
    ['actions.ngrok.terminate_tls.version', 'tls', [terminate, denied("actions.ngrok.terminate_tls.version == '1.2'")]],
    ['conn.tls.client.subject.common_name', 'https', [denied('has(conn.tls.client.subject.common_name)'), terminate]],
    ['conn.tls.cipher_suite', 'tls', [terminate, denied("conn.tls.cipher_suite != 'a'")]],
    ['conn.tls.server.san', 'tls', [inserted('conn.tls.server.san')]],
    ['conn.tls.client.san.dns_names', 'tcp', [denied("'a' in conn.tls.client.san.dns_names")]],
  ])('%s cannot be read in on_tcp_connect of %s before the handshake: %j', (name, protocol, rules) => {
    expect(checkPolicy(JSON.stringify({ on_tcp_connect: rules }), [protocol])).toMatchObject([
      { severity: 'error', message: expect.stringContaining(`${name} cannot be known: `) },
    ]);
  });

  it.each<['https' | 'tls', object]>([
    ['https', { on_tcp_connect: [denied("conn.tls.version == '1.2'"), inserted('conn.tls.server.san')] }],
    ['https', { on_tcp_connect: [terminate], on_http_request: [inserted('conn.tls.client.subject')] }],
    [
      'tls',
      { on_tcp_connect: [terminate, denied("conn.tls.sni == 'a'"), inserted('actions.ngrok.terminate_tls.sni')] },
    ],
    ['tls', { on_tcp_connect: [denied("conn.tls.version == ''")] }],
  ])('what is known can be read on %s: %j', (protocol, policy) => {
    expect(checkPolicy(JSON.stringify(policy), [protocol]).filter(({ severity }) => severity === 'error')).toEqual([]);
  });

  it('leaves its variables without a value where it did not run', async () => {
    const expressions = ['has(actions.ngrok.terminate_tls) || has(actions.ngrok.terminate_tls.version)'];
    const text = JSON.stringify({ on_http_request: [{ expressions, actions: [{ type: 'deny' }] }] });
    expect(await compilePolicy(text, 'https').onHttpRequest?.(requestFor())).toBeUndefined();
  });

  it('is refused with the id of an unknown authority', () => {
    const config = { mutual_tls_certificate_authorities: ['ca_1', 'ca_2'] };
    const ports = { hasCertificateAuthority: (id: string) => id === 'ca_1' };
    expect(checkPolicy(onConnect({ type: 'terminate-tls', config }), ['https'], { ports })).toMatchObject([
      {
        code: 'ERR_NGROK_2204',
        place: 'on_tcp_connect[0].actions[0].config.mutual_tls_certificate_authorities[1]',
        message: 'no certificate authority has the id ca_2',
      },
    ]);
  });

  it('accepts a certificate with its own key only, and quotes neither in errors', async () => {
    const [one, other] = [await issueCertificate({ subject: 'CN=a' }), await issueCertificate({ subject: 'CN=b' })];
    const refusal = (server_private_key: string) => {
      const config = { server_certificate: one.certificatePem, server_private_key };
      return checkPolicy(onConnect({ type: 'terminate-tls', config }), ['tls']);
    };
    expect(refusal(one.privateKeyPem)).toEqual([]);
    const [problem] = refusal(other.privateKeyPem);
    expect(problem).toMatchObject({
      code: 'ERR_NGROK_2204',
      place: 'on_tcp_connect[0].actions[0].config.server_private_key',
      message: 'is not the key of server_certificate',
    });
  });

  it('is refused for keys that cost too much, of its own and of authorities', async () => {
    const { certificatePem, privateKeyPem } = await issueCertificate({ subject: 'CN=a' });
    const costly = await issueCertificate({ subject: 'CN=CA', publicKey: spkiOf(madeUpRsa(16_384)) });
    const problemOf = (config: object) => checkPolicy(onConnect({ type: 'terminate-tls', config }), ['tls'])[0];
    const place = (field: string) => `on_tcp_connect[0].actions[0].config.${field}`;
    const chain = `${certificatePem}\n${costly.certificatePem}`;
    expect(problemOf({ server_certificate: chain, server_private_key: privateKeyPem })).toMatchObject({
      place: place('server_certificate'),
      message: expect.stringContaining('certificate 2 has an RSA key with 16384 bits; use RSA with 2048'),
    });
    // The certificate is not known before a secret is.
    const server_certificate = ['$', "{secrets.get('a', 'b')}"].join('');
    expect(problemOf({ server_certificate, server_private_key: pemOf(madeUpRsa(8192)) })).toMatchObject({
      place: place('server_private_key'),
      message: expect.stringContaining('is an RSA key with 8192 bits'),
    });
    expect(problemOf({ mutual_tls_certificate_authorities: [certificatePem, chain] })).toMatchObject({
      place: place('mutual_tls_certificate_authorities[1]'),
      message: expect.stringContaining('certificate 2 has an RSA key with 16384 bits'),
    });
    // All are compared with a client's certificate.
    const many = Array(26).fill(certificatePem).join('\n');
    expect(problemOf({ mutual_tls_certificate_authorities: [many] })).toBe(undefined);
    expect(problemOf({ mutual_tls_certificate_authorities: [many, many] })).toMatchObject({
      place: place('mutual_tls_certificate_authorities[1]'),
      message: 'makes more than 50 certificates of all entries',
    });
  });
});
